# The Debian root of the VM, an ext4 image made without mounting anything. Sourced by
# scripts/vm.

# shellcheck shell=bash
# shellcheck disable=SC2154 # options and paths are set by scripts/vm

vm_root_suite=trixie
vm_root_packages=(
	acl apparmor attr bash bpftool bsdutils btrfs-progs bubblewrap busybox-static
	ca-certificates crun e2fsprogs gcc git golang-go iproute2 kmod less libc6-dev libcap2-bin make nano
	nodejs npm patch perl podman procps psmisc python3 rsync runc sed sqlite3 strace sudo
	systemd tar tmux util-linux vim xfsprogs zsh
)

# vm_root_customize ROOT: accounts and settings of the finished tree.
vm_root_customize() {
	local root=$1
	chroot "$root" useradd -m -u 1000 -s /bin/bash dev
	echo 'dev ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/dev"
	chmod 440 "$root/etc/sudoers.d/dev"
	cat >"$root/root/.gitconfig" <<-CONF
		[user]
			name = Dev
			email = dev@example.com
		[init]
			defaultBranch = main
	CONF
	install -o 1000 -g 1000 -m 644 "$root/root/.gitconfig" "$root/home/dev/.gitconfig"
	echo planfence-vm >"$root/etc/hostname"
	printf '127.0.0.1 localhost planfence-vm\n::1 localhost\n' >"$root/etc/hosts"
	: >"$root/etc/fstab"
	mkdir -p "$root/mnt/share" "$root/usr/lib/modules"
	vm_root_warm_go "$root"
}

# vm_root_warm_go ROOT: has go compile what small programs and tests import, into the
# build cache of the user dev: under emulation that takes minutes.
vm_root_warm_go() {
	local dir=$1/home/dev/warm goroot
	goroot=$(dirname "$(dirname "$(chroot "$1" readlink -f /usr/bin/go)")")
	mkdir -p "$dir" "$1/home/dev/.config/go/telemetry"
	echo off >"$1/home/dev/.config/go/telemetry/mode"
	printf 'module warm\n\ngo 1.21\n' >"$dir/go.mod"
	printf 'package main\n\nimport (\n\t"fmt"\n\t"os"\n)\n\nfunc main() { fmt.Fprintln(os.Stdout, "warm") }\n' >"$dir/main.go"
	printf 'package main\n\nimport "testing"\n\nfunc TestMain1(t *testing.T) { main() }\n' >"$dir/main_test.go"
	chown -R 1000:1000 "$dir" "$1/home/dev/.config"
	# Without /proc go does not find its own files.
	chroot --userspec=1000:1000 "$1" env -i HOME=/home/dev PATH=/usr/bin:/bin \
		GOROOT="$goroot" CGO_ENABLED=0 GOPROXY=off GOTOOLCHAIN=local \
		sh -c 'cd ~/warm && go build -o /dev/null . && go test . && go vet .' >/dev/null 2>"$1.go" ||
		{ cat "$1.go" >&2 && vm_fail 'cannot build the root image: go does not compile' 'see above'; }
	rm -rf "$dir" "$1.go"
}

# vm_root_partition IMAGE: a partition table with one partition, from 1 MiB to the end.
# Without an initramfs its number, PARTUUID=504c4e46-01, is the one name for a root that
# does not depend on the order in which the kernel finds its disks.
vm_root_partition() {
	local image=$1 sectors entry
	sectors=$(($(stat -c %s "$image") / 512 - 2048))
	entry=$(printf '%08x%08x' 2048 "$sectors" | sed -E 's/(..)(..)(..)(..)/\\x\4\\x\3\\x\2\\x\1/g')
	{
		printf '\x46\x4e\x4c\x50\0\0'
		printf '\0\0\0\0\x83\0\0\0'
		# shellcheck disable=SC2059 # the entry is made of escapes
		printf "$entry"
		head -c 48 /dev/zero
		printf '\x55\xaa'
	} | dd of="$image" bs=1 seek=440 conv=notrunc status=none
}

# vm_root_build OUT: makes the image OUT.
vm_root_build() {
	local out=$1 work option
	local -a options=()
	[ "$(id -u)" = 0 ] ||
		vm_fail 'cannot build the root image: not root' \
			'run scripts/vm once with sudo, later runs need no privileges'
	work=$(mktemp -d "$vm_cache/root.XXXXXX")
	while read -r option; do
		options+=("--aptopt=$option")
	done < <(apt-config dump | grep -E '^Acquire::(http|https)::' || true)
	vm_say "building the root image (${#vm_root_packages[@]} packages, about a minute)"
	vm_sources "$vm_root_suite" "$vm_root_suite-security" |
		mmdebstrap --quiet --variant=minbase --architectures=amd64 \
			--include="$(IFS=, && echo "${vm_root_packages[*]}")" \
			--aptopt='APT::Install-Recommends "false"' "${options[@]}" \
			--dpkgopt='path-exclude=/usr/share/man/*' \
			--dpkgopt='path-exclude=/usr/share/doc/*' \
			--dpkgopt='path-exclude=/usr/share/locale/*' \
			--keyring="$vm_keyring" \
			"$vm_root_suite" "$work/tree" - >"$work/log" 2>&1 || {
		tail -n 20 "$work/log" >&2
		vm_fail 'cannot build the root image: mmdebstrap failed' "see $work/log"
	}
	vm_root_customize "$work/tree"
	gcc -static -Os -o "$work/tree/usr/sbin/vm-init" "$vm_lib/vm-init.c"
	vm_ext4 "$work/root.img" "$work/tree" 3072 1
	vm_root_partition "$work/root.img"
	mv -T "$work/root.img" "$out"
	rm -rf "$work"
}
