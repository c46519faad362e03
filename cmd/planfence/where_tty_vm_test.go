//go:build vm

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// testWhereTerminal works in an interactive shell on a terminal, as a person
// does, with sudo's own terminal (use_pty) or the caller's. What is typed is
// written so that its echo does not look like what is awaited.
func testWhereTerminal(t *testing.T) {
	dev := users[1]
	for pty, steps := range map[string][][]string{"use_pty": slices.Concat(otherSteps, jobSteps), "!use_pty": jobSteps} {
		must(t, os.WriteFile("/etc/sudoers.d/planfence-test", []byte("Defaults "+pty+"\n"), 0o440))
		t.Run(strings.Replace(pty, "!", "no ", 1), func(t *testing.T) {
			dir := dev.dir(t, "/home/dev", "tty")
			defer os.RemoveAll(dir)
			testTerminal(t, dev, dir, steps)
		})
	}
	must(t, os.Remove("/etc/sudoers.d/planfence-test"))
}

// Steps are what is awaited and then typed: those of job control are done with
// either kind of terminal, the others once.
var otherSteps = [][]string{
	// exit statuses
	{"$ ", `pf sh -c 'exit 7'; echo st'='$?`}, {"st=7"},
	{"$ ", `pf sh -c 'kill -KILL $$'; echo st'='$?`}, {"st=137"},
	{"$ ", `pf no-such; echo st'='$?`}, {"hint: ", ""}, {"st=127"},
	{"$ ", `pf /etc/passwd; echo st'='$?`}, {"st=126"},
	{"$ ", `pf --no-such -- true; echo st'='$?`}, {"st=125"},
	// nvm-style PATH, the caller's environment, what is set on the way
	{"$ ", `sudo -n FROM=sudo planfence run --quiet --env-file env --task T1 -- agent; echo st'='$?`}, {"agent: mine sudo file /home/dev"}, {"st=0"},
	// in the background, and through script
	{"$ ", `pf sh -c 'sleep .2; echo back""ground' & wait $!; echo st'='$?`}, {"background"}, {"st=0"},
	{"$ ", `script -qec 'sudo -n planfence run --quiet --task T1 -- sh -c "tty; exit 9"' /dev/null; echo st'='$?`}, {"/dev/pts/"}, {"st=9"},
	// a command that leaves a daemon: it stays fenced, and its session goes with it
	{"$ ", `pf setsid -f sh -c 'until [ -e in/go ]; do sleep .05; done; echo no > out/daemon; echo yes > in/daemon' > /dev/null; echo st'='$?`},
	{"stay fenced"}, {"st=0"},
	{"$ ", `touch in/go; until [ -s in/daemon ]; do sleep .1; done; echo lis'ted'`}, {"listed"},
	// a fence in a fence
	{"$ ", `pf sh -c 'sudo -n planfence run --task T1 -- touch in/nested'; echo st'='$?`}, {"inside session s-"}, {"hint: "}, {"st=125"},
	// a program that has the screen is not written over
	{"$ ", `sudo -n planfence run --task T1 -- python3 raw.py; echo st'='$?`}, {"fenced: root /home/dev/tty, task T1, mode enforce, attach "}, {"raw done"},
	{"while a program had the screen: 1;"}, {"st=0"},
}

var jobSteps = [][]string{
	// Ctrl-C reaches the command once, and ends one that does not expect it
	{"$ ", `pf bash -c 'trap "let n+=1" INT; echo rea""dy; until [ "$n" ]; do sleep .05; done; sleep 1; echo times $n.'; echo st'='$?`},
	{"ready", "\x03"}, {"times 1."}, {"st=0"},
	{"$ ", `pf bash -c 'echo rea""dy; exec sleep 100'; echo st'='$?`}, {"ready", "\x03"}, {"st=130"},
	// Ctrl-Z and fg
	{"$ ", `pf bash -c 'echo rea""dy; while [ ! -e go2 ]; do sleep .05; done; echo went o""n'`},
	{"ready", "\x1a"}, {"Stopped"}, {"$ ", `ps -o stat= -C sleep,bash | grep -c ^T; touch go2; fg`}, {"went on"},
	{"$ ", `pf sh -c 'kill -STOP $$; echo went o""n'`}, {"Stopped"}, {"$ ", "fg"}, {"went on"},
	// the window's size
	{"$ ", `pf bash -c 'trap "stty size; exit 3" WINCH; echo rea""dy; while :; do sleep .05; done'; echo st'='$?`},
	{"ready", "resize 41 101"}, {"41 101"}, {"st=3"},
}

func testTerminal(t *testing.T, dev *account, dir string, steps [][]string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	screen, err := whereScripts.ReadFile("testdata/where/screen.py")
	must(t, err)
	for name, text := range map[string]string{
		"screen.py":         string(screen),
		"plan.json":         planText,
		"in/keep":           "",
		"out/keep":          "",
		"env":               "# from a file\nFILE=file\nCALLER\n",
		"nvm/v20/bin/agent": "#!/bin/sh\necho agent: $CALLER $FROM $FILE $HOME\n",
		"raw.py":            "import sys, time, tty\ntty.setraw(0)\ntry:\n    open('out/raw', 'w')\nexcept PermissionError:\n    time.sleep(1)\ntty.setcbreak(0)\nimport termios\nold = termios.tcgetattr(0)\nold[3] |= termios.ICANON | termios.ECHO\ntermios.tcsetattr(0, 0, old)\nprint('raw ' + 'done', flush=True)\n",
		"rc":                "PS1='$ '; export CALLER=mine PATH=" + dir + "/nvm/v20/bin:$PATH; pf() { case $1 in -*) ;; *) set -- -- \"$@\";; esac; sudo -n planfence run --quiet --task T1 \"$@\"; }\nbind 'set enable-bracketed-paste off'\n",
	} {
		f := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(f), 0o755))
		must(t, os.WriteFile(f, []byte(text), 0o755))
	}
	mustRun(t, "chown", "-R", "dev:dev", dir)
	argv := []string{"python3", "screen.py", "bash --rcfile rc -i"}
	for _, s := range append(steps, []string{"$ ", "exit"}) {
		typed := ""
		if len(s) > 1 {
			typed = s[1]
			if !strings.HasPrefix(typed, "resize ") && len(typed) > 1 {
				typed += "\r"
			}
		}
		argv = append(argv, s[0], typed)
	}
	cmd := dev.command(ctx, argv...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	count(t, "the terminal's steps", err)
	if _, err := os.Lstat(dir + "/out/daemon"); err == nil {
		t.Error("the daemon wrote outside the scope")
	}
	if _, err := os.Lstat(dir + "/in/nested"); err == nil {
		t.Error("the nested run started its command")
	}
	eventually(t, "the sessions ended with their processes", func() bool { return noSession(dir) == nil })
}
