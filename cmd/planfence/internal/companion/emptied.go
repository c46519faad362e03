package companion

import "time"

// grace is how long a file may be empty or missing until that is what it says, no
// task or no plan: it is often emptied, or removed, before it is written.
const grace = 40 * time.Millisecond

// emptied reports whether a file is empty or missing that was not before.
func (now prints) emptied(before prints) bool {
	gone := func(p print) bool { return p.errno != 0 || p.size == 0 }
	return gone(now.plan) && !gone(before.plan) || gone(now.task) && !gone(before.task)
}
