mkdir -p a/deep && echo x > a/deep/f
## act
mv a b
cp -a b c
chmod -R g+w c
touch -d @1700000000 c/deep/f
rm -r b
