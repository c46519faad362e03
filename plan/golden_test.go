package plan

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// unseen are messages that lint never prints, with the reason.
var unseen = map[string]string{
	"the plan is too large: %d bytes, at most %d":           "its reader looks at the file's size first and says it in its own words",
	"is absolute: entries are relative to the project root": "lint knows the root",
}

// TestGoldenTexts: every message and every hint of the parser, of entries and of
// lint is shown by the golden texts of the command's tests.
func TestGoldenTexts(t *testing.T) {
	var shown strings.Builder
	files, err := filepath.Glob("../cmd/planfence/testdata/golden_*.txtar")
	if err != nil || len(files) < 3 {
		t.Fatalf("golden texts: %q, %v", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		shown.Write(b)
	}
	said, left := collect(t), maps.Clone(unseen)
	if len(said) < 90 {
		t.Errorf("only %d messages and hints are found in the sources", len(said))
	}
	for _, m := range said {
		_, excused := unseen[m.text]
		delete(left, m.text)
		if found := regexp.MustCompile(`(?m)^` + m.pattern).MatchString(shown.String()); found == excused {
			t.Errorf("%s: %s %q: shown by a golden text: %v, excused from it: %v", m.at, m.kind, m.text, found, excused)
		}
	}
	for text := range left {
		t.Errorf("%q is excused and not said", text)
	}
}

// saying is a message, a hint or a code in the sources.
type saying struct{ kind, text, pattern, at string }

// collect reads the sources for what is said by the parser and by lint.
func collect(t *testing.T) (out []saying) {
	t.Helper()
	fset := gotoken.NewFileSet()
	pkgs, err := parser.ParseDir(fset, ".", func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := collector{fset: fset, consts: map[string]ast.Expr{}}
	for _, f := range pkgs["plan"].Files {
		ast.Inspect(f, c.constant)
	}
	for _, f := range pkgs["plan"].Files {
		ast.Inspect(f, c.visit)
	}
	for name, x := range c.consts {
		if strings.HasPrefix(name, "Code") {
			_, pattern := c.text(x)
			c.say("code", name, `.*\[`+pattern+`\]$`, x)
		}
	}
	return c.out
}

type collector struct {
	fset   *gotoken.FileSet
	consts map[string]ast.Expr
	out    []saying
}

func (c *collector) constant(n ast.Node) bool {
	if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) {
		for i := range v.Names {
			c.consts[v.Names[i].Name] = v.Values[i]
		}
	}
	return true
}

func (c *collector) say(kind, text, pattern string, at ast.Node) {
	c.out = append(c.out, saying{kind, text, pattern, c.fset.Position(at.Pos()).String()})
}

// message and hint note an argument; what is put together elsewhere is noted there.
func (c *collector) message(x ast.Expr) {
	if text, pattern := c.text(x); text != "" {
		c.say("the message", text, `.*(error|warning|note): .*`+pattern+`.* \[[a-z-]+\]$`, x)
	}
}

func (c *collector) hint(x ast.Expr) {
	if text, pattern := c.text(x); text != "" {
		c.say("the hint", text, ` +hint: `+pattern+`$`, x)
	}
}

func (c *collector) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CallExpr:
		sel, ok := n.Fun.(*ast.SelectorExpr)
		if !ok {
			break
		}
		switch {
		case sel.Sel.Name == "fail" && len(n.Args) >= 3:
			c.hint(n.Args[1])
			c.message(n.Args[2])
		case sel.Sel.Name == "error" && len(n.Args) == 3:
			c.message(n.Args[1])
			c.hint(n.Args[2])
		case sel.Sel.Name == "find" && len(n.Args) >= 6:
			c.hint(n.Args[4])
			c.message(n.Args[5])
		}
	case *ast.CompositeLit:
		if id, ok := n.Type.(*ast.Ident); ok && id.Name == "problem" && len(n.Elts) == 3 {
			c.message(n.Elts[1])
			c.hint(n.Elts[2])
		}
	case *ast.AssignStmt: // hints and messages that are chosen before they are used
		for i, x := range n.Lhs {
			name := ""
			switch x := x.(type) {
			case *ast.Ident:
				name = x.Name
			case *ast.SelectorExpr:
				name = x.Sel.Name
			}
			if i < len(n.Rhs) && strings.EqualFold(name, "hint") {
				c.hint(n.Rhs[i])
			} else if i < len(n.Rhs) && name == "Msg" {
				c.message(n.Rhs[i])
			}
		}
	case *ast.FuncDecl:
		if n.Name.Name == "badID" || n.Name.Name == "Error" && c.receiver(n) == "TooComplexError" {
			c.returns(n, c.message)
		}
		if n.Name.Name == "Hint" {
			c.returns(n, c.hint)
		}
	}
	return true
}

func (c *collector) receiver(n *ast.FuncDecl) string {
	if n.Recv == nil {
		return ""
	}
	if p, ok := n.Recv.List[0].Type.(*ast.StarExpr); ok {
		return p.X.(*ast.Ident).Name
	}
	return ""
}

func (c *collector) returns(n *ast.FuncDecl, note func(ast.Expr)) {
	ast.Inspect(n, func(x ast.Node) bool {
		if r, ok := x.(*ast.ReturnStmt); ok {
			note(r.Results[0])
		}
		return true
	})
}

var verb = regexp.MustCompile(`%[a-zA-Z]`)

// text gives the constant parts of an expression, and a pattern for what it can
// say; a text of "" has no constant part.
func (c *collector) text(x ast.Expr) (text, pattern string) {
	switch x := x.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(x.Value)
		if err != nil {
			return "", ".*"
		}
		text = s
		if strings.Trim(verb.ReplaceAllString(s, ""), " :") == "" {
			return "", ".*" // put together from parts that are noted on their own
		}
		parts := verb.Split(s, -1)
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		return text, strings.Join(parts, ".*")
	case *ast.BinaryExpr:
		a, p := c.text(x.X)
		b, q := c.text(x.Y)
		return a + b, p + q
	case *ast.CallExpr:
		if sel, ok := x.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sprintf" {
			return c.text(x.Args[0])
		}
	case *ast.Ident:
		if v := c.consts[x.Name]; v != nil {
			return c.text(v)
		}
	}
	return "", ".*"
}
