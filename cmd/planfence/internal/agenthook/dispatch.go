package agenthook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Gate judges the prompts that an agent sends to another one.
type Gate struct {
	Project string   // the project's root, "" where it is not known
	Homes   []string // home directories of users
}

// Order is what a prompt declares.
type Order struct {
	Scope   []string // absolute, links resolved
	Review  bool     // it asks for a verdict
	Missing []string // what is wrong; empty where the prompt passes
}

// maxDirectives is how many checks a review may enumerate: a longer list says
// what to look at, and the reviewer looks at nothing else.
const maxDirectives = 2

var (
	// A label stands at the beginning of a line, after marks of lists, quotes
	// and emphasis.
	scopeLine    = regexp.MustCompile(`(?m)^[ \t>*_#` + "`" + `-]*ALLOWED-SCOPE[*_` + "`" + `]*:[*_]*(.*)$`)
	apertureLine = regexp.MustCompile(`(?m)^[ \t>*_#` + "`" + `-]*REVIEW-APERTURE[*_` + "`" + `]*:[*_]*(.*)$`)
)

// Judge reads a prompt.
func (g *Gate) Judge(prompt string) *Order {
	prompt = strings.ReplaceAll(prompt, "\r\n", "\n")
	o := &Order{}
	need := func(format string, args ...any) { o.Missing = append(o.Missing, fmt.Sprintf(format, args...)) }

	lines := scopeLine.FindAllStringSubmatch(prompt, -1)
	if len(lines) == 0 {
		need("a line ALLOWED-SCOPE: with an absolute path that exists")
	}
	for _, m := range lines {
		paths := scopePaths(m[1])
		if len(paths) == 0 {
			need("an absolute path on the line ALLOWED-SCOPE:")
		}
		for _, p := range paths {
			real, err := g.scope(p)
			if err != nil {
				need("a usable path in ALLOWED-SCOPE: %v", err)
				continue
			}
			o.Scope = append(o.Scope, real)
		}
	}
	if !strings.Contains(prompt, "IMPLICIT DENY") {
		need("the words IMPLICIT DENY")
	}
	aperture := apertureLine.FindStringSubmatchIndex(prompt)
	o.Review = aperture != nil || asksVerdict(prompt)
	switch {
	case o.Review && aperture == nil:
		need("a line REVIEW-APERTURE:, as it asks for a verdict")
	case o.Review:
		head, below := prompt[aperture[2]:aperture[3]], strings.TrimPrefix(prompt[aperture[1]:], "\n")
		if n := directives(head, below); n > maxDirectives {
			need("at most %d check directives under REVIEW-APERTURE:, it has %d", maxDirectives, n)
		}
	}
	return o
}

// scopePaths reads the paths of a scope line: one, or several with commas or
// white space between them. A path with spaces is taken whole where it exists.
func scopePaths(text string) []string {
	text = strings.Trim(text, " \t*_`\"'")
	if text == "" {
		return nil
	}
	if _, err := os.Lstat(text); err == nil {
		return []string{text}
	}
	var out []string
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ';' || r == ' ' || r == '\t' }) {
		if f = strings.Trim(f, "`\"'"); f != "" {
			out = append(out, f)
		}
	}
	return out
}

// scope checks one declared path and resolves it.
func (g *Gate) scope(p string) (string, error) {
	if !filepath.IsAbs(p) {
		return "", fmt.Errorf("%q is not absolute", p)
	}
	dir := strings.TrimSuffix(strings.TrimSuffix(p, "/**"), "/*")
	if dir == "" {
		dir = "/"
	}
	real, err := filepath.EvalSymlinks(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%q does not exist", p)
	case err != nil:
		return "", fmt.Errorf("%q: %w", p, errors.Unwrap(err))
	case real == "/":
		return "", fmt.Errorf("%q is the root of the file system", p)
	}
	for _, h := range g.Homes {
		if r, err := filepath.EvalSymlinks(h); err == nil {
			h = r
		}
		if real == h || h != "/" && strings.HasPrefix(h, real+"/") {
			return "", fmt.Errorf("%q is or holds a home directory", p)
		}
	}
	if g.Project != "" && strings.HasPrefix(g.Project, real+"/") {
		return "", fmt.Errorf("%q holds the whole project", p)
	}
	return real, nil
}

// Homes lists the users' home directories as far as /etc/passwd and the
// environment tell.
func Homes(getenv func(string) string) []string {
	out := []string{"/root"}
	if h := getenv("HOME"); filepath.IsAbs(h) && filepath.Clean(h) != "/" {
		out = append(out, filepath.Clean(h))
	}
	b, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return out
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if f := strings.Split(line, ":"); len(f) > 5 && (strings.HasPrefix(f[5], "/home/") || strings.HasPrefix(f[5], "/Users/")) {
			out = append(out, filepath.Clean(f[5]))
		}
	}
	return out
}

// A prompt is a review where it asks for a verdict. The word alone does not
// ask, and neither does a word that holds "review": a false alarm is worse than
// a miss.
var verdictAsked = []*regexp.Regexp{
	// VERDICT: as a form to fill in
	regexp.MustCompile(`(?m)^[ \t>*_#-]*(?:FINAL )?VERDICT[*_]*:`),
	regexp.MustCompile(`(?m)^[ \t>*_#-]*(?:Final v|V)erdict[*_]*:[*_ ]*(?:<|\[|\(|PASS|FAIL|APPROVE|ACCEPT|REJECT|GO\b|NO-GO|SHIP)`),
	// your verdict
	regexp.MustCompile(`(?i)\byour (?:\w+ )?verdict\b`),
	// Return a verdict on …, as the beginning of a sentence
	regexp.MustCompile(`(?im)(?:^[ \t>*_#-]*(?:\d+[.)]\s+)?|[.!?;:]\s+)(?:please |then |finally,? |and )*` +
		`(?:give|return|render|deliver|issue|state|report|provide|reach|(?:end|finish|close|conclude|answer|reply|respond) with)\s+` +
		`(?:me |us )?(?:a |an |the |one |exactly one )?(?:single |clear |binary |one-line |pass/fail )*verdict` +
		`\s*(?:$|[.,:;!?(—]|on\b|about\b|at the end\b|with a reason\b|with reasons\b|whether\b)`),
}

func asksVerdict(prompt string) bool {
	for _, re := range verdictAsked {
		if re.MatchString(prompt) {
			return true
		}
	}
	return false
}

var (
	itemLine   = regexp.MustCompile(`^([ \t]*)(?:[-*+•]|\(?(?:\d{1,3}|[A-Za-z])[.)])[ \t]+\S`)
	inlineItem = regexp.MustCompile(`(?:^|\s)\(?(\d{1,3}|[a-z])[.)]\s+\S`)
	labelLine  = regexp.MustCompile(`^[ \t>*_]*(?:#+\s|[A-Z][A-Z0-9 _-]{2,}[*_]*:)`)
)

// directives counts the items that stand under REVIEW-APERTURE: on its own line
// and below it, up to the next label, heading or paragraph. Items inside items
// belong to these.
func directives(head, below string) int {
	if n := len(inlineItem.FindAllString(head, -1)); n > 1 {
		return n
	}
	n, indent, blank := 0, -1, false
	for line := range strings.SplitSeq(below, "\n") {
		m := itemLine.FindStringSubmatch(line)
		switch {
		case strings.TrimSpace(line) == "":
			blank = true
			continue
		case m == nil && (blank || labelLine.MatchString(line)):
			return n
		case m != nil && (indent < 0 || len(m[1]) <= indent):
			indent = len(m[1])
			n++
		}
		blank = false
	}
	return n
}

// Template is a prompt's head that passes the gate.
func (g *Gate) Template(review bool) string {
	dir := g.Project
	if dir == "" {
		dir = "/path/to/project"
	}
	t := "ALLOWED-SCOPE: " + dir + "/src\nIMPLICIT DENY: what is not under ALLOWED-SCOPE is not yours to write.\n"
	if review {
		t += "REVIEW-APERTURE: the change as a whole, and what it may break\n"
	}
	return t
}

// Reason words a refusal of a prompt.
func (g *Gate) Reason(o *Order) string {
	var b strings.Builder
	b.WriteString("planfence: this dispatch is refused: its prompt lacks what a dispatch must declare:\n")
	for _, m := range o.Missing {
		fmt.Fprintf(&b, "- %s\n", m)
	}
	b.WriteString("Begin the prompt like this, with the paths that the agent may write:\n\n")
	b.WriteString(g.Template(o.Review))
	return strings.TrimRight(b.String(), "\n")
}
