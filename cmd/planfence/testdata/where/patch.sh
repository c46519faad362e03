printf 'one\ntwo\n' > f
printf -- '--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+new\n' > p
## act
patch -bp1 < p
grep -qx three f; grep -qx new g
