printf 'alpha\n' > f
## act
vim -Nu NONE -es f <<< $'%s/alpha/beta/\nwq'
grep -qx beta f
