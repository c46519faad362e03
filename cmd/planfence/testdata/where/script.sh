## act
script -qec 'echo typed; tty' typescript
grep -q typed typescript; grep -q /dev/pts typescript
