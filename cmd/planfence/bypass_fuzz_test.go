//go:build vm

package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fuzzScopes are the two scopes, as a plan writes them and as the model has them.
var fuzzScopes = []struct {
	text  []string
	model []modelEntry
}{
	{[]string{"a/", "!a/p/", "b/*.m"}, []modelEntry{
		{self: re(`a(/.*)?`), tree: re(`a(/.*)?`), inside: re(`a(/.*)?`)},
		{exclude: true, self: re(`a/p(/.*)?`), inside: re(`a`)},
		{self: re(`b/[^/]*\.m`), inside: re(`b`)},
	}},
	{[]string{"c/x", "b/**/n.m", "{d,e}/", "!d/q.m"}, []modelEntry{
		{self: re(`c/x(/.*)?`), tree: re(`c/x(/.*)?`), inside: re(`c|c/x(/.*)?`),
			sibling: re(`c/(x\.tmp\..*|x\..*\.tmp|x~|\.x\.sw.|\.x\..*|x\.[0-9]+|\.#x|#x#|4913|sed.{6})`)},
		{self: re(`b/(.*/)?n\.m`), inside: re(`b(/.*)?`)},
		{self: re(`[de](/.*)?`), tree: re(`[de](/.*)?`), inside: re(`[de](/.*)?`)},
		{exclude: true, self: re(`d/q\.m(/.*)?`), inside: re(`d`)},
	}},
}

func re(s string) *regexp.Regexp { return regexp.MustCompile(`(?s)^(?:` + s + `)$`) }

// fuzzNames are the tree's names.
var fuzzNames = []string{"a", "b", "c", "d", "e", "p", "x", "x~", ".x.swp", "x.tmp.1", "4913", "n.m", "q.m", "m", "sedabcdef", "x.7", "z", "A", ".m", "n.m.m"}

// begin is the tree at the start: what was there before the session, hard links included.
var begin = []struct{ what, a, b string }{
	{"dir", "a", ""}, {"dir", "b", ""}, {"dir", "c", ""}, {"dir", "d", ""}, {"dir", "z", ""}, {"dir", "a/p", ""},
	{"dir", "b/x", ""}, {"dir", "b/q.m", ""}, {"dir", "z/x", ""}, {"dir", "e", ""}, {"dir", "d/q.m", ""},
	{"file", "a/x", ""}, {"file", "a/p/x", ""}, {"file", "b/n.m", ""}, {"file", "b/z", ""}, {"file", "c/x", ""},
	{"file", "c/z", ""}, {"file", "z/x/x", ""}, {"file", "b/q.m/z", ""}, {"file", "b/x/n.m", ""}, {"file", "d/q.m/x", ""},
	{"link", "z/q.m", "a/q.m"}, {"link", "z/q.m", "d/z"}, {"link", "z/d", "b/d.m"}, {"link", "z/e", "c/x~"},
	{"symlink", "a/z", "../z"}, {"symlink", "d/a", "/a"}, {"symlink", "z/a", "../a/x"}, {"symlink", "a/e", "/z/n.m"},
}

func (m *model) begin(t string, a, b string) {
	switch t {
	case "dir":
		s, _ := m.find(a, false)
		s.add(&node{kind: dir, children: map[string]*node{}, links: 2})
	case "symlink":
		s, _ := m.find(a, false)
		s.add(&node{kind: symlink, target: b})
	case "file":
		s, _ := m.find(a, false)
		s.add(&node{kind: file})
	case "link":
		s, _ := m.find(a, false)
		if s.node == nil {
			s.add(&node{kind: file, strange: true})
			s, _ = m.find(a, false)
		}
		to, _ := m.find(b, false)
		to.add(s.node)
	}
}

func makeBegin(root string) error {
	for _, x := range begin {
		var err error
		switch x.what {
		case "dir":
			err = os.Mkdir(filepath.Join(root, x.a), 0o755)
		case "symlink":
			to := x.b
			if strings.HasPrefix(to, "/") {
				to = root + to
			}
			err = os.Symlink(to, filepath.Join(root, x.a))
		case "file":
			err = os.WriteFile(filepath.Join(root, x.a), nil, 0o644)
		case "link":
			if !exists(filepath.Join(root, x.a)) {
				err = os.WriteFile(filepath.Join(root, x.a), nil, 0o644)
			}
			err = errors.Join(err, os.Link(filepath.Join(root, x.a), filepath.Join(root, x.b)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// randomStep draws an operation, mostly on what is there.
func randomStep(r *rand.Rand, m *model) step {
	there := m.paths()
	name := func() string {
		if len(there) > 0 && r.IntN(3) > 0 {
			return there[r.IntN(len(there))]
		}
		n := 1 + r.IntN(3)
		var p []string
		for range n {
			p = append(p, fuzzNames[r.IntN(len(fuzzNames))])
		}
		if r.IntN(4) > 0 { // mostly where something is
			p[0] = []string{"a", "b", "c", "d", "e", "z"}[r.IntN(6)]
		}
		return strings.Join(p, "/")
	}
	s := step{A: name()}
	switch r.IntN(13) {
	case 0, 1, 2:
		s.Op, s.Flags = "open", r.IntN(16)
	case 3:
		s.Op = "truncate"
	case 4:
		s.Op = "chmod"
	case 5:
		s.Op = "utimes"
	case 6, 7:
		s.Op = "mkdir"
	case 8:
		s.Op = "symlink"
		s.B = []string{"../" + name(), "/" + name(), fuzzNames[r.IntN(len(fuzzNames))]}[r.IntN(3)]
	case 9:
		s.Op = []string{"unlink", "rmdir"}[r.IntN(2)]
	case 10:
		s.Op, s.B = "link", name()
	default:
		s.Op, s.B = "rename", name()
		s.Flags = []int{0, 0, stepExchange, stepNoReplace}[r.IntN(4)]
	}
	return s
}

// act makes the step in the real tree.
func (s step) act(root string) error {
	a, b := filepath.Join(root, s.A), filepath.Join(root, s.B)
	switch s.Op {
	case "open":
		flags := unix.O_WRONLY | unix.O_NONBLOCK
		for f, o := range map[int]int{stepCreate: unix.O_CREAT, stepExcl: unix.O_EXCL, stepTrunc: unix.O_TRUNC, stepNoFollow: unix.O_NOFOLLOW} {
			if s.Flags&f != 0 && (f != stepExcl || s.Flags&stepCreate != 0) { // O_EXCL alone has no meaning
				flags |= o
			}
		}
		fd, err := unix.Open(a, flags, 0o644)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	case "truncate":
		return unix.Truncate(a, 0)
	case "chmod":
		return unix.Chmod(a, 0o755)
	case "utimes":
		return unix.UtimesNanoAt(unix.AT_FDCWD, a, past, unix.AT_SYMLINK_NOFOLLOW)
	case "mkdir":
		return unix.Mkdir(a, 0o755)
	case "symlink":
		to := s.B
		if strings.HasPrefix(to, "/") {
			to = root + to
		}
		return unix.Symlink(to, a)
	case "unlink":
		return unix.Unlink(a)
	case "rmdir":
		return unix.Rmdir(a)
	case "link":
		return unix.Link(a, b)
	}
	var flags uint
	if s.Flags&stepExchange != 0 {
		flags = unix.RENAME_EXCHANGE
	}
	if s.Flags&stepNoReplace != 0 {
		flags = unix.RENAME_NOREPLACE
	}
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, flags)
}

// realList is [model.list] of the real tree.
func realList(root string) string {
	var out []string
	_ = filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(strings.TrimPrefix(p, root), "/")
		if rel == "" || rel == ".claude" || strings.HasPrefix(rel, ".claude/") {
			return nil
		}
		switch {
		case err != nil:
			out = append(out, rel+" "+err.Error())
		case e.IsDir():
			out = append(out, rel+"/")
		case e.Type()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(p)
			out = append(out, rel+" -> "+strings.TrimPrefix(to, root))
		default:
			var st unix.Stat_t
			_ = unix.Lstat(p, &st)
			out = append(out, fmt.Sprintf("%s %d", rel, st.Nlink))
		}
		return nil
	})
	sort.Strings(out)
	return strings.Join(out, "\n")
}

// fuzzResult is what a run came to.
type fuzzResult struct {
	Works, Refused, Fails int
	Wrong                 []string
}

// fuzzMain runs steps in the fence: ROOT:SCOPE:SEED:COUNT.
func fuzzMain(arg string) {
	f := strings.Split(arg, ":")
	which, _ := strconv.Atoi(f[1])
	seed, _ := strconv.ParseUint(f[2], 10, 64)
	count, _ := strconv.Atoi(f[3])
	b, _ := json.Marshal(fuzzRun(f[0], which, seed, count))
	fmt.Println(string(b))
}

// fuzzRun compares each step's outcome, and now and then the whole tree.
func fuzzRun(root string, which int, seed uint64, count int) fuzzResult {
	m := newModel(fuzzScopes[which].model)
	for _, x := range begin {
		m.begin(x.what, x.a, x.b)
	}
	r := rand.New(rand.NewPCG(seed, uint64(which)))
	var res fuzzResult
	wrong := func(i int, s step, format string, args ...any) {
		res.Wrong = append(res.Wrong, fmt.Sprintf("step %d, %s: ", i, s)+fmt.Sprintf(format, args...))
	}
	for i := 0; i < count && len(res.Wrong) < 5; i++ {
		s := randomStep(r, m)
		works, allowed := m.try(s)
		err := s.act(root)
		switch {
		case works && allowed:
			res.Works++
			if err != nil {
				wrong(i, s, "legal, but: %v", err)
			}
		case works:
			res.Refused++
			if !errors.Is(err, unix.EACCES) {
				wrong(i, s, "must be refused, but: %v", err)
			}
		default:
			res.Fails++
			if err == nil {
				wrong(i, s, "cannot work, but it did")
			}
		}
		if i%1000 == 999 || len(res.Wrong) > 0 || i == count-1 {
			if d := diff(m.list(), realList(root)); d != "" {
				wrong(i, s, "the trees differ:\n%s", d)
				break
			}
		}
	}
	return res
}

// fuzzSeeds are kept: those that once found something, and one for good measure.
var fuzzSeeds = []uint64{1}

// TestBypassFuzz runs random operations in the fence and compares each outcome
// with the model's. PLANFENCE_FUZZ_OPS sets how many a scope and a seed.
func TestBypassFuzz(t *testing.T) {
	shareMounts(t)
	hold(t)
	count := 50_000
	if v := os.Getenv("PLANFENCE_FUZZ_OPS"); v != "" {
		count, _ = strconv.Atoi(v)
	}
	seeds := fuzzSeeds
	if v := os.Getenv("PLANFENCE_FUZZ_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{n}
	}
	for which, sc := range fuzzScopes {
		for _, seed := range seeds {
			t.Run(fmt.Sprintf("scope%d-seed%d", which, seed), func(t *testing.T) {
				root := fmt.Sprintf("/work/fuzz/%d-%d", which, seed)
				b := newBench(t, root, 0)
				if err := os.Remove(root + "/t"); err != nil {
					t.Fatal(err)
				}
				text, _ := json.Marshal(sc.text)
				b.file(root+"/.claude/plan.json", `{"tasks":[{"id":"T","scope":`+string(text)+`}]}`)
				if err := makeBegin(root); err != nil {
					t.Fatal(err)
				}
				out, _ := fencedRun(t, root, 0, fmt.Sprintf("fuzz:%s:%d:%d:%d", root, which, seed, count), "--task", "T")
				var res fuzzResult
				if err := json.Unmarshal([]byte(out), &res); err != nil {
					t.Fatalf("the run: %v: %s", err, out)
				}
				for _, w := range res.Wrong {
					t.Error(w)
				}
				t.Logf("%d worked, %d were refused, %d cannot work", res.Works, res.Refused, res.Fails)
				if res.Works < count/50 || res.Refused < count/50 {
					t.Errorf("too few that mean anything")
				}
			})
		}
	}
}
