"""Runs a program on a terminal of its own: screen.py COMMAND [SEEN TYPED]...

Waits until the screen has shown SEEN, then types TYPED; where that is
"resize ROWS COLS" the terminal is resized instead."""
import fcntl, os, pty, re, select, struct, sys, termios, time

pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execvp("sh", ["sh", "-c", "stty rows 24 cols 80; exec " + sys.argv[1]])
steps = [s.encode().decode("unicode_escape").encode("latin-1") for s in sys.argv[2:]]
shown, seen, end = b"", 0, time.monotonic() + 60
while time.monotonic() < end:
    # What a match has used up does not count for the next step.
    screen = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", shown)
    while steps and (at := screen.find(steps[0], seen)) >= 0:
        seen, end = at + len(steps[0]), time.monotonic() + 60
        if steps[1:] and steps[1].startswith(b"resize "):
            rows, cols = map(int, steps[1].split()[1:])
            fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        elif steps[1:]:
            os.write(fd, steps[1])
        steps = steps[2:]
    if not select.select([fd], [], [], 1)[0]:
        continue
    try:
        b = os.read(fd, 65536)
    except OSError:
        b = b""
    if not b:
        break
    shown += b
    if re.search(rb"Error writing|Press ENTER", shown):
        os.kill(pid, 9)
        break
else:
    os.kill(pid, 9)
    print("not seen:", steps[:1], "in", screen[seen:], "after", screen[:seen])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) or (1 if steps else 0))
