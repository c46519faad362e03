package companion

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/policy"
	"planfence/loader"
)

// KeeperName is argv[0] of a session's keeper: a process of its own that waits
// until the companion is gone, however it went, and then takes its place until
// the last fenced process has ended.
const KeeperName = "planfence-keeper"

// StartKeeper starts the keeper of a session of the fence. out is where records
// go whose log is stdout, nil if it is another.
func StartKeeper(f *loader.Fence, name string, out *os.File) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the planfence program: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Args = []string{KeeperName, name}
	cmd.Dir = "/"
	cmd.Env = []string{"GOMAXPROCS=1"}
	if out != nil {
		cmd.Stdout = out
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the keeper: %w", err)
	}
	return errors.Join(f.Guard(cmd.Process.Pid), cmd.Process.Release())
}

// Keep is the keeper's main.
func Keep(name string) error {
	f, err := os.OpenFile(filepath.Join(StateDir(name), "lock"), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("open the lock of session %s: %w", name, err)
	}
	signal.Ignore(unix.SIGHUP) // meant for a companion whose log was rotated
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("wait for the companion of session %s: %w", name, err)
	}
	st, err := ReadState(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it ended in order
	}
	if err != nil {
		return err
	}
	c, err := adopt(st, f)
	if err != nil || c == nil {
		return err
	}
	return c.stay()
}

// adopt makes a companion out of a session's state. nil if the session is gone.
func adopt(st *State, lock *os.File) (*Companion, error) {
	unlock, err := loader.Lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	fence, err := loader.OpenExisting()
	if err != nil {
		return nil, err
	}
	s, err := fence.Adopt(st.ID)
	if errors.Is(err, os.ErrNotExist) {
		fence.Close()
		return nil, os.RemoveAll(StateDir(st.Name))
	}
	if err != nil {
		fence.Close()
		return nil, err
	}
	c := &Companion{
		Config: st.Config, Audit: st.Mode == "audit", Hardlinks: st.Hardlinks, Warn: func(string) {},
		About: About{st.Attach, st.Mode, st.User, st.Version, st.Command},
		fence: fence, session: s, reader: s.NewReader(), name: st.Name, lock: lock, started: st.Started, skipped: st.Skipped,
		byGeneration: map[uint64]scopeInForce{}, pending: make(chan struct{}, 1),
	}
	if st.Fixed {
		c.FixedTask = st.Task
	}
	c.LogMax, c.LogTo = st.LogMax, st.LogTo
	c.account(st)
	c.unwritten, c.saved = st.Unwritten, st.Unwritten
	c.Log = keeperLog(st)
	p, err := st.PlanInForce()
	var pol *policy.Policy
	if err == nil {
		pol, err = c.Config.Compile(p, st.Task)
	}
	if err != nil {
		if err := c.keepAsIs(st); err != nil {
			return nil, err
		}
		return c, nil
	}
	c.plan, c.policy, c.generation = p, pol, s.Generation()
	c.byGeneration[c.generation] = c.inForce(p, pol)
	if root, others, err := anchors(c.Config.Root, pol); err == nil {
		paths := []string{root.Path}
		for _, a := range others {
			paths = append(paths, a.Path)
		}
		s.Remember(c.generation, paths)
		closeAnchors(append(others, root))
	}
	return c, nil
}

// keepAsIs adopts a session whose directory lacks the plan in force: its scope stays.
func (c *Companion) keepAsIs(st *State) error {
	empty, err := emptyPlan()
	if err != nil {
		return err
	}
	c.plan, c.policy, c.generation = empty, &policy.Policy{Kind: st.Kind, TaskID: st.Task}, c.session.Generation()
	return nil
}

// keeperLog opens the log as the companion had it. Where that fails, every
// record does, and is counted.
func keeperLog(st *State) blocklog.Sink {
	var w blocklog.Sink
	var err error
	switch st.LogTo {
	case "stdout":
		return &blocklog.Stream{W: os.Stdout}
	case "journald":
		w, err = blocklog.NewJournal()
	default:
		uid, gid := ownerOf(filepath.Dir(st.Config.Log))
		w, err = blocklog.Open(st.Config.Log, uid, gid, st.LogMax)
	}
	if err != nil {
		return broken{err}
	}
	return w
}

// broken is a log that could not be opened.
type broken struct{ err error }

func (b broken) Write(*blocklog.Record) error { return b.err }
func (b broken) Reopen() error                { return b.err }
func (broken) Close() error                   { return nil }

func ownerOf(dir string) (uid, gid int) {
	if st, err := os.Stat(dir); err == nil {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			return int(sys.Uid), int(sys.Gid)
		}
	}
	return 0, 0
}

// memberPoll is how often a keeper looks whether fenced processes are left.
const memberPoll = 250 * time.Millisecond

// stay serves until the last fenced process has ended, then takes the session
// away.
func (c *Companion) stay() error {
	_ = c.Sync() // what changed in between; an error is told by status and in the log
	c.write(c.note("companion", "the companion is gone; the keeper took over, the fence held throughout"))
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	wg.Go(func() { c.Watch(ctx) })
	wg.Go(func() { c.Revoker(ctx) })
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, unix.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-hup:
			c.Reopen()
		default:
		}
		all, err := c.fence.Members()
		if err == nil && len(all[c.session.ID]) == 0 {
			break
		}
		time.Sleep(memberPoll)
	}
	stop()
	wg.Wait()
	unlock, err := loader.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	c.tellMissing()
	err = c.End(nil)
	if !errors.Is(err, loader.ErrBusy) && c.Config.TempDir != "" {
		err = errors.Join(err, os.RemoveAll(c.Config.TempDir))
	}
	return errors.Join(err, c.Log.Close())
}

// Sweep looks after sessions whose companion and keeper are both gone: those
// with processes get a keeper, the others are taken away. The caller holds
// [loader.Lock]. It returns the names of the former.
func Sweep(f *loader.Fence) ([]string, error) {
	infos, err := f.List()
	if err != nil {
		return nil, err
	}
	var orphans []string
	for _, i := range infos {
		name := Name(i.ID)
		if Alive(name) {
			continue
		}
		if len(i.Members) > 0 {
			orphans = append(orphans, name)
			if err := StartKeeper(f, name, nil); err != nil {
				return orphans, err
			}
			continue
		}
		if err := f.Drop(i.ID); err != nil {
			return orphans, err
		}
		if err := os.RemoveAll(StateDir(name)); err != nil {
			return orphans, err
		}
	}
	return orphans, nil
}
