mkdir -p src/deep && echo x > src/deep/f && ln src/deep/f src/deep/hard && ln -s deep/f src/soft
tar -cf a.tar src && rm -r src
## act
tar -xpf a.tar
test "$(cat src/soft)" = x
tar -czf b.tar.gz src
