#!/bin/bash
# Tests scripts/vm: what it promises of channels, exit status and failures on one
# kernel, then what every kernel line must offer. See --help.

set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
vm=$here/vm
kernel=6.12
lines=(6.1 6.12 6.18 7.2)

usage() {
	cat <<'TEXT'
usage: scripts/vm_test.sh [--kernel LINE] [LINE...]

Runs the tests of scripts/vm on the kernel line LINE (default 6.12), then a short check
of every LINE given (default: 6.1 6.12 6.18 7.2). Exits 1 if a test failed.
TEXT
}

case ${1:-} in
-h | --help)
	usage
	exit 0
	;;
--kernel)
	[ $# -ge 2 ] || {
		usage >&2
		exit 2
	}
	kernel=$2
	shift 2
	;;
esac
[ $# = 0 ] || lines=("$@")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 status=0

# check NAME EXPECTED GOT
check() {
	if [ "$2" = "$3" ]; then
		passed=$((passed + 1))
		echo "ok   $1"
	else
		failed=$((failed + 1))
		echo "FAIL $1"
		printf '     expected: %q\n     got:      %q\n' "$2" "$3"
		sed 's/^/     stderr: /' "$work/err" | tail -n 5
	fi
}

# match NAME PATTERN TEXT: TEXT holds a match of the extended regular expression.
match() {
	if grep -Eq -- "$2" <<<"$3"; then
		check "$1" "$2" "$2"
	else
		check "$1" "$2" "$3"
	fi
}

# run ARG...: scripts/vm with its streams in $work and its status in `status`.
run() {
	status=0
	"$vm" --kernel "$kernel" "$@" >"$work/out" 2>"$work/err" || status=$?
}

test_streams() {
	# shellcheck disable=SC2016 # expanded in the guest
	run -- sh -c 'printf "out\r\n"; printf "err\n\n" >&2; echo again > /dev/stderr; exit 3'
	check 'exit status' 3 "$status"
	check 'stdout' "$(printf 'out\r\n' | od -c)" "$(od -c <"$work/out")"
	check 'stderr' "$(printf 'err\n\nagain\n' | od -c)" "$(od -c <"$work/err")"

	head -c 1048576 /dev/urandom >"$work/random"
	mkdir "$work/share"
	cp "$work/random" "$work/share/random"
	run --share "$work/share" -- cat /mnt/share/random
	check '1 MiB of random bytes: status' 0 "$status"
	check '1 MiB of random bytes: content' "$(sha256sum <"$work/random")" "$(sha256sum <"$work/out")"

	local start=$SECONDS
	run -- head -c 20000000 /dev/zero
	check '20 MB: status and size' "0 20000000" "$status $(stat -c %s "$work/out")"
	check '20 MB in less than 20 s' yes "$([ $((SECONDS - start)) -lt 20 ] && echo yes)"

	# Output comes as it is written: five guest seconds lie between the two lines.
	local first last
	{ read -r _ && first=$SECONDS && read -r _ && last=$SECONDS; } < <(
		"$vm" --kernel "$kernel" -- sh -c 'echo a; sleep 5; echo b' 2>"$work/err"
	) || true
	check 'output is live' yes "$([ $((${last:-0} - ${first:-0})) -ge 3 ] && echo yes)"

	"$vm" --kernel "$kernel" --timeout 60 -- head -c 2000000 /dev/zero 2>"$work/err" |
		head -c 1 >/dev/null || status=${PIPESTATUS[0]}
	check 'a reader that leaves does not stop the guest' 0 "$status"
}

test_command() {
	run -- printf '%s|' 'a b' "it's \"\$HOME\"" $'two\nlines' '' '*'
	check 'arguments' "a b|it's \"\$HOME\"|"$'two\nlines||*|' "$(cat "$work/out")"
	run -- no-such-command
	check 'not found' 127 "$status"
	run -- /etc/passwd
	check 'not executable' 126 "$status"
	# shellcheck disable=SC2016 # expanded in the guest
	run -- sh -c 'sleep 1000 & kill -9 $$'
	check 'killed, with a process left behind' 137 "$status"
}

# One boot for everything that only has to be looked at.
test_environment() {
	mkdir "$work/tree"
	printf '#!/bin/sh\necho shared\n' >"$work/tree/a file"
	chmod 751 "$work/tree/a file"
	chown 1000:1000 "$work/tree/a file" 2>/dev/null || true
	printf '#!/bin/sh\necho from the host\n' >"$work/planfence"
	cat >"$work/tree/script" <<-'GUEST'
		echo "date $(date +%s)"
		echo "where $(id -u) $PWD $HOME $(umask) $TERM"
		echo "stdin $(wc -c)"
		echo "binary $(planfence) $(stat -c %U:%a /usr/local/bin/planfence)"
		echo "share $('/mnt/share/a file') $(stat -c %u:%a '/mnt/share/a file')"
		touch /mnt/share/new 2>/dev/null || echo 'share is read-only'
		echo "free $(($(stat -fc '%a * %S / 1048576' /)))"
		echo "dev $(su dev -c 'sudo -n id -u; id -u; git config user.email' | tr '\n' ' ')"
		echo "modes $(stat -c %a /tmp /dev/shm /sys/fs/bpf | tr '\n' ' ')"
		ip -br addr show lo | sed 's/^/net /'
		echo "cpus $(nproc) $(cat /proc/cmdline)"
		for tool in bash zsh sudo git vim nano sed perl python3 node npm gcc make tar \
			setfattr setfacl chattr strace bwrap crun runc podman ip ps fuser modprobe \
			rsync patch sqlite3 tmux script setcap busybox capsh unshare bpftool; do
			command -v "$tool" >/dev/null || echo "missing $tool"
		done
	GUEST
	local before=$EPOCHSECONDS
	TERM=dumb PLANFENCE_BIN=$work/planfence run --share "$work/tree" --append 'loglevel=3 a.b=c' \
		-- sh /mnt/share/script
	local out date
	out=$(cat "$work/out")
	check 'environment: status' 0 "$status"
	date=$(sed -n 's/^date //p' "$work/out")
	check 'the clock is right' yes "$([ "${date:-0}" -ge "$((before - 2))" ] &&
		[ "${date:-0}" -le "$((EPOCHSECONDS + 2))" ] && echo yes)"
	match 'user and place' '^where 0 /root /root 0022 dumb$' "$out"
	match 'stdin is empty' '^stdin 0$' "$out"
	match 'planfence binary' '^binary from the host root:755$' "$out"
	match 'share' "^share shared $(stat -c %u:%a "$work/tree/a file")\$" "$out"
	match 'share is read-only' '^share is read-only$' "$out"
	match 'free space of 2 GiB' '^free ([2-9][0-9]{3}|[0-9]{5,})$' "$out"
	match 'dev, sudo and git' '^dev 0 1000 dev@example.com $' "$out"
	match 'modes of mounts' '^modes 1777 1777 1?700 $' "$out"
	match 'words appended to the command line' '^cpus .* loglevel=3 a.b=c$' "$out"
	match 'loopback is up' '^net lo .* 127\.0\.0\.1/8' "$out"
	check 'no tool is missing' '' "$(grep ^missing "$work/out" || true)"
}

test_isolation() {
	"$vm" --kernel "$kernel" -- sh -c 'echo one > /root/mark; sync; sleep 3; cat /root/mark' \
		>"$work/one" 2>&1 &
	local other=$! one=0
	run -- sh -c 'sleep 2; cat /root/mark'
	check 'a second VM sees nothing of the first' 1 "$status"
	wait "$other" || one=$?
	check 'the first VM goes on' '0 one' "$one $(cat "$work/one")"
}

test_failures() {
	local start=$SECONDS
	run --timeout 5 -- sh -c 'echo before; sleep 1000'
	check 'time-out: status and output' '125 before' "$status $(cat "$work/out")"
	match 'time-out: message' '^vm: timed out after 5 s, console log: /' "$(cat "$work/err")"
	check 'time-out: in time' yes "$([ $((SECONDS - start)) -le 9 ] && echo yes)"

	run --timeout 60 -- sh -c 'echo c > /proc/sysrq-trigger; sleep 1000'
	check 'panic: status' 125 "$status"
	match 'panic: message' '^vm: kernel .* died: Kernel panic .*, console log: /' "$(cat "$work/err")"
	local log
	log=$(sed -n 's/^vm: kernel .*console log: //p' "$work/err")
	match 'panic: console log' 'sysrq triggered crash' "$(tr -d '\0\r' <"${log:-/dev/null}")"

	run --append init=/no/such/init -- true
	check 'boot failure: status' 125 "$status"
	match 'boot failure: tried again' '^vm: .* trying once more' "$(cat "$work/err")"
	match 'boot failure: message' '^vm: kernel .* did not boot: Kernel panic' "$(cat "$work/err")"

	run -- sh -c 'exit 125'
	check "a command's own 125 has no message" '125 ' "$status $(cat "$work/err")"
	run --kernel banana -- true
	check 'wrong option: status' 2 "$status"
	match 'wrong option: hint' '^hint: ' "$(cat "$work/err")"
}

test_icount() {
	run --icount -- nproc
	check 'icount' '0 1' "$status $(cat "$work/out")"
}

# What every kernel must offer.
test_line() {
	# shellcheck disable=SC2016 # expanded in the guest
	kernel=$1 run -- bash -ec '
		uname -r
		cat /sys/kernel/security/lsm; echo
		test -r /sys/kernel/btf/vmlinux
		modprobe -a overlay btrfs xfs loop fuse
		for fs in btrfs xfs ext4; do
			truncate -s 400M /root/$fs.img
			mkfs.$fs -q /root/$fs.img
			mkdir /root/$fs
			mount -o loop /root/$fs.img /root/$fs
			echo $fs > /root/$fs/file
			stat -fc %T /root/$fs
		done
		mkdir -p /root/o/{lower,upper,work,merged}
		mount -t overlay overlay -o lowerdir=/root/o/lower,upperdir=/root/o/upper,workdir=/root/o/work /root/o/merged
		echo x > /root/o/merged/file
		test -s /root/o/upper/file && echo overlay'
	local out
	out=$(tr '\n' ' ' <"$work/out")
	check "$1: status" 0 "$status"
	match "$1: release" "^${1//./\\.}[.]" "$out"
	match "$1: bpf is active" '[ ,]bpf[ ,]' "$out"
	match "$1: file systems" 'btrfs xfs ext2/ext3 overlay $' "$out"
}

for line in "$kernel" "${lines[@]}"; do "$vm" --kernel "$line" --build; done
SECONDS=0
echo "scripts/vm on $kernel"
test_streams
test_command
test_environment
test_isolation
test_failures
test_icount
for line in "${lines[@]}"; do test_line "$line"; done
echo "took $SECONDS s"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
