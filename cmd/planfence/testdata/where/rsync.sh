mkdir -p src/sub && echo x > src/sub/f && echo y > src/g
## act
rsync -a --delete src/ dst/
echo z > src/g
rsync -a --inplace src/ dst/
grep -qx z dst/g
