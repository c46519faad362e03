package plan

// Entries with wildcards are read as the union of what their braces expand to,
// each expansion normalised like a literal: "//" and "./" vanish, ".." is
// refused, "**" is special where it is a whole component. Nothing is expanded:
// the token list with its jumps is walked together with the states below, which
// hold back what cannot be decided before a component ends.

type pathState uint8

const (
	atStart pathState = iota // nothing read yet
	atComp                   // a component starts; its slash is held back
	dot1                     // "."
	dot2                     // ".."
	star1                    // "*"
	star2                    // "**"
	star3                    // "***" or more: as "*"
	inName                   // within a name, nothing held back
	oneAny                   // as inName; so far just "?"
	anyName                  // as inName; so far one "?" and stars: any name
	pathStates

	afterGlobs = pathStates // added to atComp..star3: "**" is held back, too
	allStates  = afterGlobs + inName
)

// split separates the flag of a held back "**".
func (s pathState) split() (base pathState, globs bool) {
	if s >= afterGlobs {
		return s - afterGlobs, true
	}
	return s, false
}

func withGlobs(s pathState, globs bool) pathState {
	if globs && s >= atComp && s < inName {
		return s + afterGlobs
	}
	return s
}

// next is the state after a token that is no brace.
func (s pathState) next(t token) pathState {
	base, globs := s.split()
	switch t.kind {
	case tokSlash:
		return withGlobs(atComp, base == star2 || globs && (base == atComp || base == dot1))
	case tokStar:
		switch base {
		case atStart, atComp:
			return withGlobs(star1, globs)
		case star1:
			return withGlobs(star2, globs)
		case star2, star3:
			return withGlobs(star3, globs)
		case oneAny, anyName:
			return anyName
		}
		return inName
	case tokAny:
		switch base {
		case atStart, atComp:
			return oneAny
		case star1, star2, star3:
			return anyName
		}
		return inName
	}
	if isDot(t) {
		switch base {
		case atStart, atComp:
			return withGlobs(dot1, globs)
		case dot1:
			return withGlobs(dot2, globs)
		}
	}
	return inName
}

// How much of all paths an expansion covers so far.
const (
	depth0   = iota // no component but "**"
	depthAny        // one component that any name matches
	depthOwn        // something of its own
	depths
)

// validate refuses tokens of which an expansion names the root, everything, or
// something outside the root.
func validate(toks []token) *problem {
	type node struct {
		at    int32
		state pathState
		depth uint8
	}
	n := len(toks)
	seen := make([]bool, (n+1)*int(allStates)*depths)
	var todo []node
	push := func(at int32, s pathState, d uint8) {
		k := (int(at)*int(allStates)+int(s))*depths + int(d)
		if !seen[k] {
			seen[k] = true
			todo = append(todo, node{at, s, d})
		}
	}
	push(0, atStart, depth0)
	// First found is not first in the text: keep the foremost.
	var worst *problem
	report := func(p *problem) {
		if worst == nil || p.off < worst.off {
			worst = p
		}
	}
	for len(todo) > 0 {
		x := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		base, globs := x.state.split()
		if int(x.at) == n {
			if p := atEnd(base, globs, x.depth); p != nil {
				report(p)
			}
			continue
		}
		t := toks[x.at]
		switch t.kind {
		case tokOpen:
			for _, a := range t.alts {
				push(a, x.state, x.depth)
			}
			continue
		case tokComma:
			push(t.close+1, x.state, x.depth)
			continue
		case tokClose:
			push(x.at+1, x.state, x.depth)
			continue
		}
		if base == atStart {
			switch {
			case t.kind == tokSlash:
				report(&problem{int(t.off), "holds a leading slash in braces: entries are relative to the project root", "write it without the leading slash"})
				continue
			case t.kind == tokByte && t.b == '~' && !t.escaped:
				report(tilde(int(t.off)))
				continue
			case t.kind == tokByte && t.b == '!' && !t.escaped:
				report(&problem{int(t.off), "holds an exclamation mark in braces: an entry excludes as a whole", `write \! for an exclamation mark in a name`})
				continue
			}
		}
		d := x.depth
		if t.kind == tokSlash {
			switch base {
			case dot2:
				report(dotdot(int(t.off) - 2))
				continue
			case star1, star3, anyName:
				if d == depth0 {
					d = depthAny
				} else {
					d = depthOwn
				}
			case inName, oneAny:
				d = depthOwn
			}
		}
		push(x.at+1, x.state.next(t), d)
	}
	return worst
}

// atEnd judges an expansion that ends in a state.
func atEnd(base pathState, globs bool, depth uint8) *problem {
	if base == dot2 {
		return dotdot(0)
	}
	all := &problem{0, "covers everything: a scope is a part of the project", everythingHint}
	switch {
	case depth == depth0 && base == atStart:
		return &problem{0, "can stand for nothing: all that it holds is optional", "give every alternative a name"}
	case depth == depth0 && !globs && (base == atComp || base == dot1):
		return &problem{0, "names the root: a scope is a part of the project", everythingHint}
	case depth == depth0 && base != inName && base != oneAny:
		return all
	case depth == depthAny && !globs && (base == atComp || base == dot1):
		return all
	}
	return nil
}
