printf 'alpha\n' > f
## act
sed -i.bak s/alpha/beta/ f
sed -i s/beta/gamma/ f
grep -qx gamma f; grep -qx alpha f.bak
