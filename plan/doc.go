// Package plan is the pure half of planfence: it reads a plan, understands the
// scope language, compiles scopes to the byte table that the kernel runs, and
// judges paths with it. It knows nothing of the kernel and needs no privileges;
// what it has to know of the disk it asks through interfaces.
//
// # From text to verdict
//
//	plan.json ─Parse─> Plan, Task, Entry ─Compile─> Table ─Walk, End─> verdict
//
// [Parse] reports every problem of a plan with file, line and column; what it
// accepts means exactly what the scope language says. [Compile] turns groups of
// rules into one minimised byte automaton; the kernel program reads the same
// table in place. [Plan.Explain] says why a path is or is not allowed, and
// [Plan.Lint] looks for scopes that do not mean what their author thinks.
//
// # Scope language
//
// An entry is a path relative to the project root. Without a wildcard it covers
// that path and everything below it. "*" is any run of bytes but '/', "?" one
// character, "**" as a whole component any number of components, "{a,b}" one of
// the alternatives, "\" makes the next byte ordinary, a leading "!" excludes.
// An entry with a wildcard covers exactly what it matches; ending it in "/" or
// "/**" reaches below. Exclusions always win.
//
// One character, for "?", is what [unicode/utf8.DecodeRuneInString] finds at
// that place: a whole valid UTF-8 encoding, or else one byte. "*" runs over
// bytes and may end inside a character. Neither matches '/'.
package plan
