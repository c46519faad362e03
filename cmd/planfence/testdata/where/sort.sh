seq 40000 | tac > lines
## act
sort -S 64k -n -o lines lines
test "$(head -n 1 lines)" = 1
