package plan

// One character, for "?", is a whole valid UTF-8 encoding or else one byte. Two
// things follow for an automaton that reads bytes: from the first byte of an
// encoding on the rest must come (must), or, where that byte was taken alone,
// the rest must not come (mustNot). Both are read off the same table; within a
// state of the deterministic automaton they are a mode beside the state.

// rest is a state within an encoding: which bytes may come next, and what is
// then missing.
type rest struct {
	lo, hi byte
	next   uint8 // index of the rest, 0 when the encoding is complete
}

var rests = [...]rest{
	1: {0x80, 0xBF, 0},
	2: {0x80, 0xBF, 1},
	3: {0xA0, 0xBF, 1}, // after E0
	4: {0x80, 0x9F, 1}, // after ED
	5: {0x80, 0xBF, 2},
	6: {0x90, 0xBF, 2}, // after F0
	7: {0x80, 0x8F, 2}, // after F4
}

// leads are the first bytes of encodings of several bytes.
var leads = []rest{
	{0xC2, 0xDF, 1}, {0xE0, 0xE0, 3}, {0xE1, 0xEC, 2}, {0xED, 0xED, 4}, {0xEE, 0xEF, 2},
	{0xF0, 0xF0, 6}, {0xF1, 0xF3, 5}, {0xF4, 0xF4, 7},
}

// singles are the bytes that are always a character of their own.
var singles = []rest{{1, '/' - 1, 0}, {'/' + 1, 0xC1, 0}, {0xF5, 0xFF, 0}}

const (
	modeBits = 4
	mustNot  = 0 // + index of the rest
	must     = 8 // + index of the rest
)
