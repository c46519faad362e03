package companion

import (
	"fmt"

	"planfence/cmd/planfence/internal/blocklog"
)

// account reads what the log tells of the session so far: a companion that was
// killed took along what it had read from the ring and held to fold it. Where the
// log is no file nobody can tell, and the kernel's totals at the end stand alone.
func (c *Companion) account(st *State) {
	if st.Config.Log == "" {
		return
	}
	var recorded, lost uint64
	if _, err := blocklog.ReadAll(st.Config.Log, func(r *blocklog.Record) {
		switch {
		case r.Session != st.Name:
		case r.Kind == "block":
			recorded += r.Count
		case r.Kind == "lost":
			lost += r.Lost
		}
	}); err != nil {
		return
	}
	c.before, c.told = true, recorded+lost
	c.lost = max(lost, st.Unwritten) - st.Unwritten // of the ring
}

// tellMissing writes down how many refusals a companion before this one took
// along. Called at the end, when everything has been read and written.
func (c *Companion) tellMissing() {
	n, err := c.session.Counts()
	if err != nil || !c.before {
		return
	}
	var all uint64
	for _, v := range n.Refused {
		all += v
	}
	for _, v := range n.Audited {
		all += v
	}
	c.logMu.Lock()
	told := c.told + c.untold
	if all > told {
		c.missing = all - told
	}
	c.logMu.Unlock()
	if c.missing > 0 {
		r := c.note("lost", fmt.Sprintf("%d refusals were made but not recorded one by one: a companion that was killed had read them", c.missing))
		r.Lost = c.missing
		c.write(r)
	}
}
