package companion

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

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
	return plan.Parse(path, b, plan.ParseOptions{Root: root})
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

// current reads plan and active task as they are now.
func (c *Companion) current() (*plan.Plan, string, error) {
	p, err := ReadPlan(c.Config.Plan, c.Config.Root)
	if err != nil {
		return nil, "", err
	}
	if c.FixedTask != "" {
		return p, c.FixedTask, nil
	}
	id, err := ReadTask(c.Config.TaskFile)
	return p, id, err
}

// Sync brings the scope in force in step with plan and active task. On an error
// the last good scope stays in force.
func (c *Companion) Sync() error {
	p, id, err := c.current()
	if err == nil {
		c.revoke() // first: no write passes between the two
		err = c.apply(p, id)
	}
	if err != nil {
		c.stale(err)
		return err
	}
	return nil
}

func (c *Companion) apply(p *plan.Plan, id string) error {
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
	c.byGeneration[gen] = scopeInForce{p, pol}
	delete(c.byGeneration, gen-keepScopes)
	c.mu.Unlock()
	c.saveState()
	return nil
}

// keepScopes is how many old scopes are kept to explain events that were made
// before a switch and read after it.
const keepScopes = 64
