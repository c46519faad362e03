## act
zsh -fc 'cat > f << X
$((6 * 7))
X
[[ $(< f) = 42 ]]; cat <(print sub) =(print file) > g'
grep -qx file g
