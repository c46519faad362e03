printf 'module app\n\ngo 1.21\n' > go.mod
printf 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println(answer()) }\n\nfunc answer() int { return 42 }\n' > main.go
printf 'package main\n\nimport "testing"\n\nfunc TestAnswer(t *testing.T) {\n\tif answer() != 42 {\n\t\tt.Error(answer())\n\t}\n}\n' > main_test.go
## act
go build -o app .
test "$(./app)" = 42
go test -count=1 .
