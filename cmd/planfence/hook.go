package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"planfence/cmd/planfence/internal/agenthook"
	"planfence/cmd/planfence/internal/blocklog"
	"planfence/cmd/planfence/internal/companion"
	"planfence/cmd/planfence/internal/policy"
	"planfence/plan"
)

type hookFlags struct {
	projectFlags
	agent, dispatch string
	enforce         bool
}

// hookFailure is the exit status of everything that goes wrong in hook: several
// agents take 1 for "go on".
const hookFailure = 2

func newHook(e *env) *cobra.Command {
	f := &hookFlags{}
	c := &cobra.Command{
		Use:   "hook [flags]",
		Short: "Judge an agent's tool call: the hook of Claude Code, Codex, Copilot, Cursor, Gemini CLI",
		Long: `hook reads a tool call from standard input as the agent's hooks get it. A call
that would write outside the scope of the active task is refused, with the
reason for the agent; one that passes prints nothing. After a call it tells the
agent what the kernel refused while it ran. Calls that dispatch another agent
must declare their scope.

The exit status is 0 or 2, never 1. With no active task it lets files pass. A
hook is advice to the agent; run holds it to it.`,
		Example: `  planfence hook install --agent claude
  planfence hook --agent claude < payload.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &exitError{code: hookFailure, err: fmt.Errorf("unknown argument %q of hook", args[0]), hint: "planfence hook --help"}
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error { return f.run(e) },
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &exitError{code: hookFailure, err: err, hint: "planfence hook --help lists what there is"}
	})
	f.add(c.Flags())
	c.Flags().StringVar(&f.agent, "agent", agenthook.Auto, "the `agent` that calls: "+strings.Join(agenthook.Agents, ", ")+"; auto recognises it")
	c.Flags().StringVar(&f.dispatch, "dispatch", "on", "`off`: let prompts to other agents pass as they are")
	c.Flags().BoolVar(&f.enforce, "enforce", false, "make a dispatch's declared scope that of the session that follows dispatch/plan.json beside the plan")
	c.AddCommand(newHookInstall(e), newHookUninstall(e))
	return c
}

func (f *hookFlags) run(e *env) error {
	now := time.Now()
	if err := errors.Join(oneOf("agent", f.agent, append([]string{agenthook.Auto}, agenthook.Agents...)...), oneOf("dispatch", f.dispatch, "on", "off")); err != nil {
		return &exitError{code: hookFailure, err: err, hint: hintOf(err)}
	}
	data, err := io.ReadAll(io.LimitReader(e.stdin, agenthook.MaxPayload+1))
	if err == nil && len(data) > agenthook.MaxPayload {
		err = fmt.Errorf("read the tool call: it has more than %d bytes", agenthook.MaxPayload)
	}
	var call *agenthook.Call
	if err == nil {
		call, err = agenthook.Parse(data, f.agent)
	}
	if err != nil {
		return answer(e, agenthook.Refuse(nil, f.agent, cannotJudge(err)))
	}
	switch {
	case call.Event == agenthook.Other:
		return nil
	case call.Event == agenthook.After || call.Event == agenthook.AfterFailed:
		return f.after(e, call, now)
	case call.Kind() == agenthook.Shell:
		if dir := sessionTemp(e); dir != "" {
			agenthook.Clock{Dir: dir}.Begin(call, now)
		}
		return nil
	case call.Kind() == agenthook.Files:
		return f.files(e, call)
	case call.Kind() == agenthook.Dispatch && f.dispatch == "on":
		return f.gate(e, call)
	}
	return nil
}

func answer(e *env, a agenthook.Answer) error {
	if _, err := io.WriteString(e.stdout, a.Stdout); err != nil {
		return &exitError{code: hookFailure, err: fmt.Errorf("answer the agent: %w", err)}
	}
	_, _ = io.WriteString(e.stderr, a.Stderr)
	if a.Code != 0 {
		return &exitError{code: a.Code}
	}
	return nil
}

// cannotJudge words a refusal for want of a verdict.
func cannotJudge(err error) string {
	s := fmt.Sprintf("planfence: the call is refused, because it cannot be judged: %v", err)
	if h := hintOf(err); h != "" {
		s += "\nhint: " + h
	}
	return s + "\nReport this under open items; do not look for another way to write."
}

// files judges a call of a tool that writes files.
func (f *hookFlags) files(e *env, call *agenthook.Call) error {
	s, base, err := f.scope(e, call)
	if err == nil && s == nil {
		return nil // no plan, or no active task
	}
	var targets []agenthook.Target
	if err == nil {
		targets, err = call.Targets()
	}
	var refused []*checkResult
	for i := 0; err == nil && i < len(targets); i++ {
		var r *checkResult
		if r, err = s.judgeTarget(targets[i], base, e.getenv("HOME")); r != nil {
			refused = append(refused, r)
		}
	}
	if err != nil {
		return answer(e, agenthook.Refuse(call, "", cannotJudge(err)))
	}
	if len(refused) == 0 {
		return nil
	}
	for _, r := range refused {
		s.logRefusal(e, call, r)
	}
	if call.Event == agenthook.Late {
		_, _ = io.WriteString(e.stderr, s.reason(refused, len(targets))+"\n")
		return nil // the edit is made; the record is what is left to do
	}
	return answer(e, agenthook.Refuse(call, "", s.reason(refused, len(targets))))
}

// judgeTarget judges one path in every way in which the agent may mean it, and
// returns the refusal, or nil.
func (s *scopeAtHand) judgeTarget(t agenthook.Target, base, home string) (*checkResult, error) {
	op, err := plan.ParseOp(t.Op)
	if err != nil {
		return nil, err
	}
	for _, path := range spellings(t.Path, base, home) {
		r, err := s.judge(path, op, t.Op)
		if err != nil {
			return nil, err
		}
		if r.Verdict != "allow" {
			return r, nil
		}
	}
	return nil, nil
}

// spellings are the absolute paths that a path of a tool call may stand for: ~
// may be the home directory or a name, and .. may be taken from the text or
// from where a link before it leads.
func spellings(path, base, home string) []string {
	abs := path
	if !filepath.IsAbs(abs) {
		abs = base + "/" + path
	}
	out := []string{filepath.Clean(abs)}
	if strings.Contains(abs+"/", "/../") {
		at := "/"
		for name := range strings.SplitSeq(abs, "/") {
			switch name {
			case "", ".":
			case "..":
				if real, err := filepath.EvalSymlinks(at); err == nil {
					at = real
				}
				at = filepath.Dir(at)
			default:
				at = filepath.Join(at, name)
			}
		}
		out = append(out, at)
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok && home != "" {
		out = append(out, filepath.Join(home, rest))
	}
	return out
}

// reason words the refusal of a call of a file tool.
func (s *scopeAtHand) reason(refused []*checkResult, total int) string {
	var b strings.Builder
	who := "task " + s.id
	if s.id == "" {
		who = "no task is active, and this session"
	}
	if len(refused) == 1 {
		fmt.Fprintf(&b, "planfence: %s may not %s %s: %s.\n", who, refused[0].Op, refused[0].name(), s.why(refused[0]))
	} else {
		fmt.Fprintf(&b, "planfence: %s may not write %d of the %d paths of this call:\n", who, len(refused), total)
		for _, r := range refused {
			fmt.Fprintf(&b, "- %s: %s\n", r.name(), s.why(r))
		}
	}
	if s.pol.Kind == policy.Task {
		fmt.Fprintf(&b, "Allowed for %s: %s.\n", s.id, agenthook.Allowed(s.entries()))
	}
	b.WriteString("Do not look for another way to write there. Report it under open items: which path, and what should be done in it. Then go on with what is in scope.")
	return b.String()
}

func (r *checkResult) name() string {
	if r.Rel != "" {
		return blocklog.Printable(r.Rel)
	}
	return blocklog.Printable(r.Path)
}

func (s *scopeAtHand) why(r *checkResult) string {
	var why string
	switch r.Rule {
	case "exclusion":
		why = fmt.Sprintf("its scope excludes it (%q)", r.Entry)
	case "contents":
		why = fmt.Sprintf("%q does not cover all that lies below", r.Entry)
	case "none":
		why = "no entry of its scope covers it"
		if r.Rel == "" {
			why = "it lies outside the project"
		}
	case "no-task":
		why = r.Note
		if why == "" {
			why = "everything is refused"
		}
	default:
		why = r.Note
	}
	if len(r.Owner) > 0 {
		why += "; it belongs to " + strings.Join(r.Owner, ", ")
	}
	return why
}

// entries are the active task's scope as the plan has it.
func (s *scopeAtHand) entries() []string {
	var out []string
	if t := s.plan.Task(s.id); t != nil {
		for _, en := range t.Scope {
			out = append(out, en.Text)
		}
	}
	return out
}

// logRefusal notes in the block log that the hook refused.
func (s *scopeAtHand) logRefusal(e *env, call *agenthook.Call, r *checkResult) {
	reason := r.Rule
	if reason != "protected" {
		reason = "scope"
	}
	rec := s.hookRecord(call, r.Op, fmt.Sprintf("%s of %s refused: %s: %s", call.Tool, call.Agent, r.name(), s.why(r)))
	rec.Verdict, rec.Rel, rec.Reason, rec.Owner, rec.Count = "block", r.Rel, reason, r.Owner, 1
	if call.Event == agenthook.Late {
		rec.Verdict = "would-block"
	}
	blocklog.SetPath(&rec.Path, &rec.PathBytes, r.Path)
	s.log(e, rec)
}

func (s *scopeAtHand) hookRecord(call *agenthook.Call, op, message string) *blocklog.Record {
	uid := uint32(os.Getuid())
	return &blocklog.Record{
		Time: blocklog.Stamp(time.Now()), Kind: "hook", Via: "hook", Session: s.live, Task: s.id, Op: op,
		PID: os.Getppid(), UID: &uid, Comm: call.Agent, Message: message,
	}
}

// log notes a record. Inside a fence the log is closed to the hook: its companion
// takes the record over.
func (s *scopeAtHand) log(e *env, r *blocklog.Record) {
	if s.cfg.Log == "" {
		return
	}
	if s.live != "" {
		if err := companion.Spool(s.cfg.TempDir, r); err != nil {
			fmt.Fprintf(e.stderr, "planfence: the refusal is not in the log: %v\n", err)
		}
		return
	}
	uid, gid := os.Getuid(), os.Getgid()
	if st, err := os.Stat(filepath.Dir(s.cfg.Log)); err == nil && uid == 0 {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			uid, gid = int(sys.Uid), int(sys.Gid)
		}
	}
	w, err := blocklog.Open(s.cfg.Log, uid, gid, 0)
	if err == nil {
		err = w.Write(r)
		w.Close()
	}
	if err != nil {
		fmt.Fprintf(e.stderr, "planfence: the refusal is not in the log: %v\n", err)
	}
}

// after tells the agent what the kernel refused while a call ran. Outside a
// session there is no kernel that refuses, and nothing to tell.
func (f *hookFlags) after(e *env, call *agenthook.Call, now time.Time) error {
	dir := sessionTemp(e)
	if dir == "" || call.Kind() == agenthook.Ignored || call.Kind() == agenthook.Dispatch {
		return nil
	}
	since := agenthook.Clock{Dir: dir}.End(call, now)
	s, _, err := f.scope(e, call)
	if err != nil || s == nil || s.live == "" || s.cfg.Log == "" {
		return nil // the call is over: there is nothing left to refuse
	}
	found, err := agenthook.Await(call, s.cfg.Log, s.live, since, now)
	if err != nil {
		fmt.Fprintf(e.stderr, "planfence: %v\n", err)
	}
	if len(found) == 0 {
		return nil
	}
	return answer(e, agenthook.Tell(call, agenthook.Paragraph(found, s.id, s.entries())))
}
