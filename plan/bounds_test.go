package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The promises about size and time, with room for a slow or busy machine: what
// they guard against is not a factor of two but work that grows with the square.
const slack = 4

func words(r *rand.Rand, n int) []string {
	syllables := strings.Fields("ab con de ex for gen hel in jo ker log man net op par que re ser test un val wid xy zo_ 1 2 3 -")
	out := make([]string, n)
	for i := range out {
		for range 2 + r.IntN(3) {
			out[i] += syllables[r.IntN(len(syllables))]
		}
	}
	return out
}

// literalEntries are distinct file names in a tree such as projects have.
func literalEntries(r *rand.Rand, n int) []string {
	dirs := words(r, 40)
	exts := []string{".go", ".js", ".ts", ".tsx", ".py", "_test.go", ".md", ".c", ".json"}
	seen := map[string]bool{}
	var out []string
	for len(out) < n {
		path := dirs[r.IntN(len(dirs))] + "/" + dirs[r.IntN(len(dirs))] + "/" + words(r, 1)[0] + exts[r.IntN(len(exts))]
		if !seen[path] {
			seen[path] = true
			out = append(out, path)
		}
	}
	return out
}

// mixedScope is 20 entries of all kinds.
func mixedScope(r *rand.Rand) []string {
	w := words(r, 60)
	var out []string
	for i := 0; len(out) < 20; i += 3 {
		a, b, c := w[i%60], w[(i+1)%60], w[(i+2)%60]
		switch len(out) % 8 {
		case 0, 1, 2:
			out = append(out, a+"/"+b+"/"+c+".go")
		case 3:
			out = append(out, a+"/"+b+"/")
		case 4:
			out = append(out, a+"/"+b+"/*.js")
		case 5:
			out = append(out, a+"/**/"+b+"_?.{ts,tsx}")
		case 6:
			out = append(out, "!"+a+"/"+b+"/"+c+"*")
		case 7:
			out = append(out, a+"/{"+b+","+c+"}/**/*.md")
		}
	}
	return out
}

// within fails if f takes longer than the limit allows. Where other programs
// share the processors, the time on them counts.
func within(t *testing.T, limit time.Duration, f func()) {
	t.Helper()
	begin, used := time.Now(), processorTime(t)
	f()
	elapsed, used := time.Since(begin), processorTime(t)-used
	took := min(elapsed, used)
	t.Logf("took %v, %v on processors; promised %v", elapsed.Round(time.Millisecond), used.Round(time.Millisecond), limit)
	if took > slack*limit {
		t.Errorf("took %v, promised %v", took, limit)
	}
}

// processorTime is what this process has used of all processors.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// allocated is how many bytes f allocates in all, freed ones included.
func allocated(f func()) uint64 {
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	f()
	runtime.ReadMemStats(&b)
	return b.TotalAlloc - a.TotalAlloc
}

func TestManyTasksCompileFast(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	tasks := make([]Task, 1000)
	for i := range tasks {
		tasks[i].Scope = entries(t, mixedScope(r)...)
	}
	within(t, time.Second, func() {
		for i := range tasks {
			if _, err := Compile([]Group{{Rules: tasks[i].rules(true), Inherit: -1}}, Limits{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestManyLiteralsCompileFast(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	list := literalEntries(r, MaxEntries)
	for _, siblings := range []bool{false, true} {
		t.Run(fmt.Sprintf("siblings=%v", siblings), func(t *testing.T) {
			task := Task{Scope: entries(t, list...)}
			var table *Table
			var size uint64
			within(t, 2*time.Second, func() {
				size = allocated(func() {
					var err error
					if table, err = Compile([]Group{{Rules: task.rules(siblings), Inherit: -1}}, Limits{}); err != nil {
						t.Fatal(err)
					}
				})
			})
			t.Logf("%d cells, %d MiB allocated", len(table.Cells), size>>20)
			for _, path := range list {
				if table.End(table.Walk(table.Start[0], "/"+path)) != Accept {
					t.Fatalf("%s is not covered", path)
				}
			}
			if got := 8 * len(table.Cells); got > 64<<20 {
				t.Errorf("the table takes %d bytes", got)
			}
		})
	}
}

func TestExplosionsAreRefused(t *testing.T) {
	alternatives := "{" + strings.Repeat("a,", 1000) + "b}"
	for name, scope := range map[string][]string{
		"any":      {"src/a.go", "**/*a" + strings.Repeat("?", 40) + "b", "docs/"},
		"bytes":    {"src/a.go", "*a" + strings.Repeat("?", 200), "docs/"},
		"product":  strings.Fields(product(24)),
		"braces":   {"x/" + strings.Repeat("{a,b*,*c}?", 80)},
		"repeated": {"x/*a" + alternatives + strings.Repeat("?", 30)},
	} {
		t.Run(name, func(t *testing.T) {
			task := &Task{ID: "T", Scope: entries(t, scope...)}
			var err error
			var size uint64
			within(t, time.Second, func() {
				size = allocated(func() {
					_, err = Compile([]Group{{Rules: task.rules(true), Inherit: -1}}, Limits{})
				})
			})
			t.Logf("%d MiB allocated: %v", size>>20, err)
			if size > 2<<30 {
				t.Errorf("%d MiB allocated", size>>20)
			}
			var tc *TooComplexError
			if !errors.As(err, &tc) {
				t.Fatalf("got %v, want a TooComplexError", err)
			}
			if len(tc.Entries) == 0 {
				t.Fatal("no entry is named")
			}
			for _, e := range tc.Entries {
				if e.Text == "src/a.go" || e.Text == "docs/" {
					t.Errorf("%s is blamed", e.Text)
				}
			}
		})
	}
}

// product is entries that are harmless alone: together their states multiply.
func product(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("**/*%c%c*/%c", 'a'+i, 'a'+i, 'a'+i))
	}
	return strings.Join(out, " ")
}

func TestHarmlessBracesCompile(t *testing.T) {
	within(t, time.Second, func() {
		e := strings.Repeat("{a,b,c}", 400)
		table := scopeOf(t, false, "x/"+e, "y/"+strings.Repeat("{,a}", 400)+"b", strings.Repeat("{a,", 900)+"b"+strings.Repeat("}", 900))
		if table.End(table.Walk(table.Start[0], "/x/"+strings.Repeat("abca", 100))) != Accept {
			t.Error("an alternative is not covered")
		}
	})
}

func BenchmarkCompileTask(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	task := Task{Scope: entries(b, mixedScope(r)...)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile([]Group{{Rules: task.rules(true), Inherit: -1}}, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompileLiterals(b *testing.B) {
	r := rand.New(rand.NewPCG(2, 2))
	task := Task{Scope: entries(b, literalEntries(r, MaxEntries)...)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile([]Group{{Rules: task.rules(true), Inherit: -1}}, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWalk(b *testing.B) {
	table := scopeOf(b, true, "src/slug.js", "test/slug.test.js", "docs/", "!docs/private/", "**/*.md")
	b.ReportAllocs()
	for b.Loop() {
		if table.End(table.Walk(table.Start[0], "/src/a/b/c/slug.js")) != Dead {
			b.Fatal("covered")
		}
	}
}
