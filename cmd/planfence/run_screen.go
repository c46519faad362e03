package main

import (
	"os"

	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/blocklog"
)

// show tells the terminal of a refusal, unless a program such as an editor has
// the screen: then it is only counted.
func (s *fenced) show(r *blocklog.Record) {
	if t, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS); err == nil && t.Lflag&unix.ICANON == 0 {
		s.mu.Lock()
		s.unseen += r.Count
		s.mu.Unlock()
		return
	}
	s.say("%s", r.Text())
}

// tellUnseen says how many refusals [fenced.show] kept off the screen.
func (s *fenced) tellUnseen() {
	if s.unseen == 0 {
		return
	}
	where := "planfence tail " + s.cfg.Log
	if s.cfg.Log == "" {
		where = "see the log"
	}
	s.say("refusals not shown while a program had the screen: %d; %s", s.unseen, where)
}
