package plan

import "strings"

// Match says what the entry alone makes of a path relative to the root: [Accept]
// if it covers it, [Sibling] if siblings is set and the path is a sibling of the
// file it names, or [Dead]. For an exclusion, Accept means that it matches.
func (e Entry) Match(rel string, siblings bool) State {
	rel = strings.Trim(rel, "/")
	pat := e.pat
	switch {
	case pat == nil:
		return Dead
	case pat.isLit:
		rest, ok := strings.CutPrefix(rel, pat.literal)
		if ok && (rest == "" || pat.below && (rest[0] == '/' || pat.literal == "")) {
			return Accept
		}
		if siblings && !e.Exclude && !pat.slash && pat.literal != "" {
			dir, file := splitName(pat.literal)
			if name, ok := strings.CutPrefix(rel, dir); ok {
				if _, ok := IsSibling(file, name); ok {
					return Sibling
				}
			}
		}
		return Dead
	case !strings.HasPrefix(rel+"/", pat.prefix) || !pat.endsLike(rel):
		return Dead
	}
	e.Exclude = false
	n := newNFA()
	n.group()
	n.add(0, Rule{Entry: e}, 0)
	d := &determiner{n: n}
	d.begin()
	d.reach(uint32(n.posTries[0]) << modeBits)
	set := d.targets
	if rel != "" {
		set = d.afterSet(set, "/"+rel)
	}
	for _, x := range set {
		if x&(1<<modeBits-1) < must && n.mark[x>>modeBits]&markInclude != 0 {
			return Accept
		}
	}
	return Dead
}

// endsLike reports whether a path ends in the ordinary bytes that an entry with
// wildcards ends in: without them it is no match. One that ends in a dot is left to
// the match itself: a last name of "." is no name.
func (p *pattern) endsLike(rel string) bool {
	if n := len(p.toks); n > 0 && p.toks[n-1].kind == tokByte && p.toks[n-1].b == '.' {
		return true
	}
	for i := len(p.toks) - 1; i >= 0 && p.toks[i].kind == tokByte; i-- {
		if rel == "" || rel[len(rel)-1] != p.toks[i].b {
			return false
		}
		rel = rel[:len(rel)-1]
	}
	return true
}

// LiteralText writes a path as an entry that names it literally. The path must
// not be empty; bytes of it that are no UTF-8 cannot stand in a plan.
func LiteralText(path string) string {
	var b strings.Builder
	for i := range len(path) {
		c := path[i]
		switch {
		case strings.IndexByte(`*?{}\`, c) >= 0,
			i == 0 && (c == '!' || c == '~'),
			c == '$' && i+1 < len(path) && (isLetter(path[i+1]) || path[i+1] == '{' || path[i+1] == '('):
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}
