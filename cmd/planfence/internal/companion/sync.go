package companion

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"planfence/cmd/planfence/internal/policy"
	"planfence/loader"
	"planfence/plan"
)

// maxTaskFile bounds the active-task file: an id has at most 128 bytes.
const maxTaskFile = 4096

// ReadTask reads the active-task file; a missing one means no task. Trailing
// white space is trimmed.
func ReadTask(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the active task: %w", err)
	}
	defer f.Close()
	b := make([]byte, maxTaskFile+1)
	n := 0
	for n < len(b) {
		m, err := f.Read(b[n:])
		n += m
		if err != nil || m == 0 {
			break
		}
	}
	if n > maxTaskFile {
		return "", fmt.Errorf("read the active task: %s is longer than %d bytes", path, maxTaskFile)
	}
	return strings.TrimRight(string(b[:n]), " \t\r\n\v\f"), nil
}

// ReadPlan reads and parses a plan.
func ReadPlan(path, root string) (*plan.Plan, error) {
	p, _, err := readPlan(path, root)
	return p, err
}

// readPlan also returns the text.
func readPlan(path, root string) (*plan.Plan, []byte, error) {
	b, err := planText(path)
	if err != nil {
		return nil, nil, err
	}
	p, err := plan.Parse(path, b, plan.ParseOptions{Root: root})
	return p, b, err
}

func planText(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("read the plan: %s is no regular file", path)
	}
	if st.Size() > maxPlan {
		return nil, fmt.Errorf("read the plan: %s has %d bytes, at most %d", path, st.Size(), maxPlan)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	return b, nil
}

// PlanInForce reads the plan that a session's scope was compiled from. The file
// that it came from may have been broken, changed or removed since.
func (s *State) PlanInForce() (*plan.Plan, error) {
	b, err := os.ReadFile(planCopy(s.Name))
	if err != nil {
		return nil, fmt.Errorf("read the plan in force: %w", err)
	}
	return plan.Parse(s.Config.Plan, b, plan.ParseOptions{Root: s.Config.Root})
}

func planCopy(name string) string { return filepath.Join(StateDir(name), "plan.json") }

// savePlan keeps the text of the plan in force in the session's directory, for
// those who may read the plan itself.
func (c *Companion) savePlan(text []byte) {
	sum := sha256.Sum256(text)
	if sum == c.planSum {
		return
	}
	to := planCopy(c.name)
	tmp := to + ".new"
	err := os.WriteFile(tmp, text, 0o600)
	var st unix.Stat_t
	if err == nil {
		err = unix.Stat(c.Config.Plan, &st)
	}
	if err == nil {
		err = os.Chown(tmp, int(st.Uid), int(st.Gid))
	}
	if err == nil {
		err = os.Chmod(tmp, os.FileMode(st.Mode&0o444|0o400))
	}
	if err == nil {
		err = os.Rename(tmp, to)
	}
	if err != nil {
		c.Warn(fmt.Sprintf("keep the plan in force for check: %v", err))
		return
	}
	c.planSum = sum
}

const maxPlan = 16 << 20

func emptyPlan() (*plan.Plan, error) {
	return plan.Parse("", []byte(`{"tasks":[]}`), plan.ParseOptions{})
}

// build compiles the scope for an id and opens its anchors.
func (c *Companion) build(p *plan.Plan, id string) (loader.Scope, *policy.Policy, error) {
	pol, err := c.Config.Compile(p, id)
	if err != nil {
		return loader.Scope{}, nil, err
	}
	root, others, err := anchors(c.Config.Root, pol)
	if err != nil {
		return loader.Scope{}, nil, err
	}
	return loader.Scope{
		Table: pol.Table, Root: root, Anchors: others, SocketStart: pol.Table.Start[policy.Sockets],
		Audit: c.Audit, Open: pol.Kind == policy.Idle,
		Deny:      pol.Kind == policy.Closed || pol.Kind == policy.Unknown,
		Hardlinks: c.Hardlinks, Stdio: c.Stdio,
	}, pol, nil
}

// read is what the files said when they were last read.
type read struct {
	text []byte
	plan *plan.Plan // what text says; nil: not parsed, or no plan
	id   string
	err  error
}

func (c *Companion) readFiles() (r read) {
	r.text, r.err = planText(c.Config.Plan)
	r.id = c.FixedTask
	if r.id == "" && r.err == nil {
		r.id, r.err = ReadTask(c.Config.TaskFile)
	}
	return r
}

// differs reports whether the files say something else than when they were read.
func (c *Companion) differs() bool {
	r := c.readFiles()
	if r.err != nil || c.last.err != nil {
		return fmt.Sprint(r.err) != fmt.Sprint(c.last.err)
	}
	return r.id != c.last.id || !bytes.Equal(r.text, c.last.text)
}

// current reads plan and active task as they are now. A text that is known is
// not parsed again.
func (c *Companion) current() (*plan.Plan, []byte, string, error) {
	old := c.last
	c.last = c.readFiles()
	r := &c.last
	if r.err != nil {
		return nil, nil, "", r.err
	}
	if old.plan != nil && bytes.Equal(old.text, r.text) {
		r.plan = old.plan
		return r.plan, r.text, r.id, nil
	}
	p, err := plan.Parse(c.Config.Plan, r.text, plan.ParseOptions{Root: c.Config.Root})
	if err != nil {
		return nil, nil, "", err
	}
	r.plan = p
	return p, r.text, r.id, nil
}

// Sync brings the scope in force in step with plan and active task. On an error
// the last good scope stays in force.
func (c *Companion) Sync() error {
	p, text, id, err := c.current()
	if err == nil {
		c.revoke() // first: no write passes between the two
		err = c.apply(p, text, id)
		c.revoked()
	}
	if err != nil {
		c.stale(err)
		return err
	}
	return nil
}

// apply puts a scope in force. text is the plan's.
func (c *Companion) apply(p *plan.Plan, text []byte, id string) error {
	sc, pol, err := c.build(p, id)
	if err != nil {
		return err
	}
	gen, err := c.session.SetScope(sc)
	if err != nil {
		closeAnchors(append(sc.Anchors, sc.Root))
		return err
	}
	c.mu.Lock()
	c.plan, c.policy, c.generation, c.synced = p, pol, gen, time.Now()
	c.staleWhy = ""
	c.byGeneration[gen] = c.inForce(p, pol)
	delete(c.byGeneration, gen-keepScopes)
	c.mu.Unlock()
	c.savePlan(text)
	c.saveState()
	return nil
}

// keepScopes is how many old scopes are kept to explain events that were made
// before a switch and read after it.
const keepScopes = 64
