printf 'alpha\n' > f
## act
python3 "$BASE/scripts/screen.py" 'vim -Nu NONE --cmd "set backup" f' alpha ':%s/alpha/beta/\r' beta ':wq\r'
grep -qx beta f; grep -qx alpha f~
