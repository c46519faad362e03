package policy

import (
	_ "embed"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"planfence/plan"
)

//go:embed profiles.conf
var profilesFile string

// Profile is a named set of paths that a program needs for its own state.
type Profile struct {
	Name     string   `json:"name"`
	About    string   `json:"about"`
	Commands []string `json:"commands,omitempty"` // base names that choose it
	With     []string `json:"with,omitempty"`     // profiles that come along
	Paths    []string `json:"paths,omitempty"`    // as in the file: ~, $VAR, ! are not resolved
}

// Profiles returns all profiles in the order of the file.
func Profiles() []Profile {
	var out []Profile
	for _, line := range strings.Split(profilesFile, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasPrefix(line, "[") {
			out = append(out, Profile{Name: strings.Trim(line, "[]")})
			continue
		}
		p := &out[len(out)-1]
		key, rest, _ := strings.Cut(line, " ")
		switch key {
		case "about":
			p.About = strings.TrimSpace(rest)
		case "commands":
			p.Commands = strings.Fields(rest)
		case "with":
			p.With = strings.Fields(rest)
		default:
			p.Paths = append(p.Paths, line)
		}
	}
	return out
}

// ChooseProfiles resolves a list of names ("none" for none), or, where it is
// empty, chooses by the command's name and the environment. The result has no
// duplicates and holds what comes along.
func ChooseProfiles(names []string, command string, getenv func(string) string) ([]string, error) {
	all := map[string]Profile{}
	var known []string
	byCommand := map[string]string{}
	for _, p := range Profiles() {
		all[p.Name] = p
		known = append(known, p.Name)
		for _, c := range p.Commands {
			byCommand[c] = p.Name
		}
	}
	if len(names) == 0 {
		if p, ok := byCommand[filepath.Base(command)]; ok {
			names = append(names, p)
		}
		if getenv("GITHUB_ACTIONS") == "true" {
			names = append(names, "github-actions")
		}
	}
	var out []string
	var add func(n string) error
	add = func(n string) error {
		p, ok := all[n]
		if !ok {
			return fmt.Errorf("no profile %q: there are %s", n, strings.Join(known, ", "))
		}
		if slices.Contains(out, n) {
			return nil
		}
		out = append(out, n)
		for _, w := range p.With {
			if err := add(w); err != nil {
				return err
			}
		}
		return nil
	}
	for _, n := range names {
		if n == "none" {
			continue
		}
		if err := add(n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ProfilePaths resolves the chosen profiles' paths: absolute, with a leading !
// for exclusions.
func ProfilePaths(names []string, home string, getenv func(string) string) []string {
	var out []string
	for _, p := range Profiles() {
		if !slices.Contains(names, p.Name) {
			continue
		}
		for _, path := range p.Paths {
			not := ""
			if rest, ok := strings.CutPrefix(path, "!"); ok {
				not, path = "!", rest
			}
			switch {
			case strings.HasPrefix(path, "~/"):
				if home == "" || home == "/" {
					continue
				}
				path = escape(resolvePrefix(home)) + path[1:]
			case strings.HasPrefix(path, "$"):
				name, rest := path[1:], ""
				if i := strings.IndexByte(name, '/'); i >= 0 {
					name, rest = name[:i], name[i:]
				}
				v := getenv(name)
				if !filepath.IsAbs(v) || filepath.Clean(v) == "/" {
					continue
				}
				path = escape(resolvePrefix(filepath.Clean(v))) + rest
			}
			out = append(out, not+path)
		}
	}
	return out
}

// escape makes a literal path safe inside a pattern.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "{", `\{`, "}", `\}`).Replace(s)
}

// profileRules returns the allowances of the chosen profiles.
func profileRules(c *Config) ([]rule, error) {
	var out []rule
	for _, p := range c.ProfilePaths {
		e, err := plan.ParseEntry(p, plan.ParseOptions{Root: "/"})
		if err != nil {
			return nil, fmt.Errorf("profile path %s: %w", p, err)
		}
		out = append(out, rule{"profile", e, ""})
	}
	return out, nil
}
