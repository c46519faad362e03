package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/companion"
	"planfence/cmd/planfence/internal/launch"
	"planfence/cmd/planfence/internal/metrics"
	"planfence/cmd/planfence/internal/policy"
	"planfence/loader"
)

type runFlags struct {
	projectFlags
	log, mode, attach, user, idle, git, hardlinks, envFile string
	allow, profiles                                        []string
	quiet, noSiblings                                      bool
	logMax                                                 int64
	metrics                                                string
}

func newRun(e *env) *cobra.Command {
	f := &runFlags{}
	c := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG...]",
		Short: "Run a command inside the fence",
		Long: `run starts a command inside the fence. While it runs, the kernel refuses every
write outside the scope of the active task, for the command and all its
descendants, whatever program makes it. Changes of the plan and of the active
task are in force within 100 ms.

The exit status is the command's (128+n for a signal); 127 if it is not found,
126 if it cannot be executed, 125 if planfence itself failed.`,
		Example: `  sudo planfence run -- claude
  sudo planfence run --task T1 -- npm test
  sudo planfence run --mode audit --log audit.log -- make`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return hinted(errors.New("no command to run"), "planfence run [flags] -- COMMAND [ARG...]")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			err := f.run(e, args)
			var ee *exitError
			if err != nil && !errors.As(err, &ee) {
				err = &exitError{code: launch.ExitFailure, err: err}
			}
			return err
		},
	}
	fl := c.Flags()
	fl.SetInterspersed(false)
	f.add(fl)
	fl.StringVar(&f.log, "log", "", "the block log's `file`, - for stdout, journald for the journal (default: blocked.log beside the plan)")
	fl.StringVar(&f.mode, "mode", "enforce", "`enforce` refuses; audit only records what would have been refused")
	fl.StringVar(&f.attach, "attach", "auto", "attach `mode`: auto, lsm or fmod_ret")
	fl.StringArrayVar(&f.allow, "allow", nil, "a further `path` or scope-style pattern that may be written (repeatable)")
	fl.StringSliceVar(&f.profiles, "profile", nil, "open the `profiles`' paths: names, or none (default: by the command's name)")
	fl.StringVar(&f.user, "user", "", "run the command as this `user` (default: the caller of sudo)")
	fl.StringVar(&f.idle, "idle", "open", "with no active task: `open` protects only the fence's files, closed refuses everything")
	fl.StringVar(&f.git, "git", "on", "`off`: the checkout's git directory is not writable")
	fl.StringVar(&f.hardlinks, "hardlinks", "refuse", "`allow` writes files in place that have other hard links")
	fl.StringVar(&f.envFile, "env-file", "", "a `file` of NAME=VALUE lines that are added to the command's environment")
	fl.BoolVar(&f.quiet, "quiet", false, "print no line a block")
	fl.BoolVar(&f.noSiblings, "no-siblings", false, "do not allow saving a file through a sibling that is renamed onto it")
	fl.Int64Var(&f.logMax, "log-max", 0, "rotate the log at this size in `bytes` (0: never)")
	fl.StringVar(&f.metrics, "metrics", "", "serve Prometheus metrics on this `address`, [HOST:]PORT, HOST in numbers (default host: 127.0.0.1)")
	return c
}

func oneOf(flag, value string, values ...string) error {
	for _, v := range values {
		if v == value {
			return nil
		}
	}
	return hinted(fmt.Errorf("--%s %s: not known", flag, value), "--%s takes %s", flag, strings.Join(values, " or "))
}

func (f *runFlags) check() error {
	return errors.Join(
		oneOf("mode", f.mode, "enforce", "audit"), oneOf("attach", f.attach, "auto", "lsm", "fmod_ret"),
		oneOf("idle", f.idle, "open", "closed"), oneOf("git", f.git, "on", "off"),
		oneOf("hardlinks", f.hardlinks, "refuse", "allow"))
}

func (f *runFlags) run(e *env, args []string) error {
	if err := f.check(); err != nil {
		return err
	}
	p, err := f.find()
	if err != nil {
		return err
	}
	pl, err := companion.ReadPlan(p.plan, p.root)
	if err != nil {
		return err
	}
	fixed := f.task
	if fixed == "" {
		fixed = e.getenv("ACTIVE_TASK")
	}
	id := fixed
	if id == "" {
		if id, err = companion.ReadTask(p.taskFile); err != nil {
			return err
		}
	}
	if id != "" && pl.Task(id) == nil {
		return hinted(errors.New(companion.UnknownTask(pl, id)), "--task or planfence task with one of these ids")
	}
	cfg := p.config()
	cfg.Allow, cfg.Idle, cfg.Git, cfg.Siblings = f.allow, f.idle, f.git == "on", !f.noSiblings
	cfg.Hardlinks = f.hardlinks == "allow"
	for _, a := range f.allow {
		if _, err := policy.AllowEntry(a, p.root); err != nil {
			return hinted(fmt.Errorf("--allow %s: %w", a, err), "--allow takes a path or a scope-style pattern")
		}
	}
	who, err := whoRuns(f.user, e.getenv)
	if err != nil {
		return err
	}
	if f.envFile != "" {
		if who.extra, err = readEnvFile(f.envFile, who.getenv(e.getenv)); err != nil {
			return err
		}
	}
	getenv := who.getenv(e.getenv)
	if cfg.Profiles, err = policy.ChooseProfiles(f.profiles, args[0], getenv); err != nil {
		return hinted(err, "planfence profiles lists them")
	}
	cfg.ProfilePaths = policy.ProfilePaths(cfg.Profiles, who.home, getenv)
	// A first compile without the fence: a plan that cannot be enforced starts nothing.
	if _, err := cfg.Compile(pl, id); err != nil {
		return err
	}
	path, err := findCommand(args[0], who)
	if err != nil {
		return err
	}
	if err := nested(getenv, args); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return hinted(fmt.Errorf("raise the fence: %w", os.ErrPermission), "run it as root: sudo planfence run -- %s", strings.Join(args, " "))
	}
	s := &fenced{flags: f, env: e, cfg: cfg, who: who, path: path, args: args}
	return s.start(p, id, fixed)
}

// fenced is one run.
type fenced struct {
	flags *runFlags
	env   *env
	cfg   policy.Config
	who   *identity
	path  string
	args  []string
	logTo string // file, stdout or journald

	c      *companion.Companion
	busy   bool   // fenced processes are left
	unseen uint64 // refusals that were not shown while a program had the screen
	undo   []func()
	mu     sync.Mutex // stderr lines
}

func (s *fenced) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.env.stderr, "planfence: %s\n", fmt.Sprintf(format, args...))
}

func (s *fenced) cleanup() {
	for i := len(s.undo) - 1; i >= 0; i-- {
		s.undo[i]()
	}
	s.undo = nil
}

// start raises the fence and runs the command; everything is undone on failure.
func (s *fenced) start(p *project, id, fixed string) (err error) {
	defer s.cleanup()
	// A reader of stdout or stderr that goes away ends neither the session nor its log.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	tmp, err := s.tempDir()
	if err != nil {
		return err
	}
	s.cfg.TempDir = tmp
	log, err := s.openLog()
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func() { log.Close() })

	listener, err := s.listen()
	if err != nil {
		return err
	}

	s.c = &companion.Companion{
		Config: s.cfg, FixedTask: fixed, Audit: s.flags.mode == "audit", Hardlinks: s.flags.hardlinks == "allow", LogMax: s.flags.logMax,
		About: companion.About{Mode: s.flags.mode, User: s.who.name, Version: version, Command: s.args},
		Stdio: stdio(), Log: log, LogTo: s.logTo, Warn: func(m string) { s.say("%s", m) },
	}
	if !s.flags.quiet {
		s.c.OnRecord = func(r *blocklog.Record) {
			if r.Kind == "block" {
				s.show(r)
			}
		}
	}
	fence, err := s.raise(id)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func() { fence.Close() })
	child, err := s.launch(fence, tmp)
	if err != nil {
		s.end(launch.ExitFailure)
		return err
	}
	debug.SetGCPercent(gcPercent)
	debug.FreeOSMemory() // loading takes more than everything after it
	s.announce(fence)
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.c.Run(ctx) })
	wg.Go(func() { s.c.Watch(ctx) })
	wg.Go(func() { s.c.Revoker(ctx) })
	if listener != nil {
		wg.Go(func() {
			if err := metrics.Serve(ctx, listener, s.c.Measure); err != nil {
				s.say("%v", err)
			}
		})
	}
	finish := func(code int) {
		stop()
		wg.Wait()
		s.end(code)
		s.tellUnseen()
	}
	if err := child.Go(); err != nil {
		child.Kill()
		code := launch.ExitFailure
		if errors.Is(err, unix.ENOENT) {
			code = launch.ExitNotFound
		} else if errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOEXEC) || errors.Is(err, unix.EPERM) {
			code = launch.ExitNotExecable
		}
		finish(code)
		return &exitError{code: code, err: err, hint: "is it a program of this machine, and is its interpreter there?"}
	}
	code := s.wait(child.Cmd.Process)
	finish(code)
	if code != 0 {
		return &exitError{code: code}
	}
	return nil
}

// listen opens the address of --metrics, before anything is fenced.
func (s *fenced) listen() (net.Listener, error) {
	if s.flags.metrics == "" {
		return nil, nil
	}
	l, err := metrics.Listen(s.flags.metrics)
	if err != nil {
		return nil, hinted(err, "--metrics takes a port for 127.0.0.1, or an address in numbers such as 0.0.0.0:9464")
	}
	s.undo = append(s.undo, func() { l.Close() })
	s.say("metrics on http://%s/metrics", l.Addr())
	return l, nil
}

// gcPercent trades a little processor time, of which a companion needs next to
// none, for memory.
const gcPercent = 40

// raise loads or joins the fence and puts the first scope in force.
func (s *fenced) raise(id string) (*loader.Fence, error) {
	unlock, err := loader.Lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	fence, err := loader.Open(loader.Options{Mode: loader.Mode(s.flags.attach)})
	if err != nil {
		return nil, fmt.Errorf("raise the fence: %w", err)
	}
	if orphans, err := companion.Sweep(fence); err != nil {
		s.say("look after earlier sessions: %v", err)
	} else if len(orphans) > 0 {
		s.say("found sessions without a companion: %s; they stay fenced", strings.Join(orphans, ", "))
	}
	if err = s.c.Begin(fence, id); err == nil {
		var out *os.File
		if s.logTo == "stdout" {
			out = os.Stdout
		}
		err = companion.StartKeeper(fence, s.c.SessionName(), out)
	}
	if err != nil {
		fence.Close()
		return nil, fmt.Errorf("raise the fence: %w", err)
	}
	return fence, nil
}

// launch starts the command's process, labels it, and proves by a canary that
// it is fenced.
func (s *fenced) launch(fence *loader.Fence, tmp string) (*launch.Child, error) {
	canary := filepath.Join(companion.StateDir(s.c.SessionName()), "canary")
	if err := os.WriteFile(canary, nil, 0o600); err != nil {
		return nil, fmt.Errorf("make the canary: %w", err)
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	before, err := s.c.Session().Counts()
	if err != nil {
		return nil, err
	}
	child, err := launch.Start(launch.Spec{
		Path: s.path, Args: s.args, Env: append(s.who.environment(tmp), "PLANFENCE_SESSION="+s.c.SessionName()), Dir: dir, UID: s.who.uid, GID: s.who.gid,
		Groups: s.who.groups, Switch: s.who.change, Canary: canary, Audit: s.flags.mode == "audit",
	})
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*launch.Child, error) {
		child.Kill()
		return nil, err
	}
	pidfd, err := loader.PidfdOpen(child.Cmd.Process.Pid)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(pidfd)
	if err := s.c.Session().Label(pidfd); err != nil {
		return fail(err)
	}
	if err := child.Canary(); err != nil {
		return fail(hinted(fmt.Errorf("the fence does not hold: %w", err), "run planfence doctor for the cause; nothing was started"))
	}
	after, err := s.c.Session().Counts()
	if err != nil {
		return fail(err)
	}
	if after.Events == before.Events {
		return fail(hinted(errors.New("the fence does not hold: the canary was not seen"), "run planfence doctor for the cause; nothing was started"))
	}
	s.c.Discard()
	if err := s.c.Session().Reset(); err != nil {
		return fail(err)
	}
	return child, nil
}

func (s *fenced) announce(fence *loader.Fence) {
	s.c.Start()
	task := s.c.Task()
	if task == "" {
		task = "none"
	}
	log := s.cfg.Log
	if log == "" {
		log = s.logTo
	}
	s.say("fenced: root %s, task %s, mode %s, attach %s, profile %s, log %s", s.cfg.Root, task, s.flags.mode, fence.Mode,
		orNone(strings.Join(s.cfg.Profiles, ",")), log)
	if msg := s.c.Explain(); msg != "" {
		s.say("%s", msg)
	}
}

// end takes the session away. Processes that are left stay fenced.
func (s *fenced) end(code int) {
	unlock, err := loader.Lock()
	if err != nil {
		s.say("%v", err)
		return
	}
	defer unlock()
	if n := s.c.Skipped(); n > 0 {
		s.say("the kernel skipped %d runs of the fence's programs: this run proves nothing, something may have passed", n)
	}
	for range 20 { // a last process may be on its way out
		if err = s.c.End(&code); !errors.Is(err, loader.ErrBusy) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if errors.Is(err, loader.ErrBusy) {
		s.busy = true
		s.say("processes of session %s are left and stay fenced: planfence status lists them", s.c.SessionName())
		return
	}
	if err != nil {
		s.say("%v", err)
	}
}

// tempDir makes the session's private temporary directory.
func (s *fenced) tempDir() (string, error) {
	dir, err := os.MkdirTemp("/tmp", "planfence-")
	if err != nil {
		return "", fmt.Errorf("make a temporary directory: %w", err)
	}
	s.undo = append(s.undo, func() {
		if !s.busy { // else the keeper removes it with the session
			os.RemoveAll(dir)
		}
	})
	if err := os.Chown(dir, s.who.uid, s.who.gid); err != nil {
		return "", fmt.Errorf("chown %s: %w", dir, err)
	}
	return filepath.EvalSymlinks(dir)
}

// stdio returns what the operator opened descriptors 0, 1 and 2 on, where it is
// a file or a device.
func stdio() []*os.File {
	var out []*os.File
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		if st, err := f.Stat(); err == nil && (st.Mode().IsRegular() || st.Mode()&os.ModeCharDevice != 0) {
			out = append(out, f)
		}
	}
	return out
}
