# One run of the VM: the payload, the qemu command line, the channels. Sourced by
# scripts/vm.

# shellcheck shell=bash
# shellcheck disable=SC2154 # options and paths are set by scripts/vm
# shellcheck disable=SC2054 # commas belong to qemu's options
# shellcheck disable=SC2034 # outcome is for scripts/vm

# vm_payload FILE BINARY SHARE ARG...: what vm-init reads from the third disk; the
# format is described in vm-init.c. BINARY may be empty, SHARE is 0 or 1.
vm_payload() {
	local file=$1 binary=$2 share=$3 args envs binbytes=0 argbytes envbytes
	local -a env=(
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
		HOME=/root USER=root LOGNAME=root SHELL=/bin/bash LANG=C.UTF-8
		"TERM=${TERM:-dumb}"
	)
	shift 3
	args=$file.args envs=$file.env
	printf '%s\0' "$@" >"$args"
	printf '%s\0' "${env[@]}" >"$envs"
	argbytes=$(stat -c %s "$args")
	envbytes=$(stat -c %s "$envs")
	if [ -n "$binary" ]; then binbytes=$(stat -Lc %s "$binary"); fi
	{
		printf '%-511s\n' "PFVM $# $argbytes ${#env[@]} $envbytes $binbytes $share"
		cat "$args" "$envs" ${binbytes:+${binary:+"$binary"}}
	} >"$file"
	rm "$args" "$envs"
	truncate -s %4096 "$file"
}

# vm_qemu_args: fills the array `qemu` from the options.
vm_qemu_args() {
	local run=$1 log=$2 accel=tcg,tb-size=512 n=1 disk
	local -a disks=("$vm_root" "$vm_kernel_dir/modules.img" "$run/payload")
	[ ! -e "$run/share.img" ] || disks+=("$run/share.img")
	# With two threads, 7.2 has died while it patched its own text.
	if [ "$smp" = 1 ] || [ "${kernel%%.*}" -ge 7 ]; then
		accel+=,thread=single
	else
		accel+=,thread=multi
	fi
	qemu=(
		qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot
		-machine q35 -accel "$accel" -cpu max -m "$mem" -smp "$smp"
		-rtc base=utc
		-kernel "$vm_kernel_dir/vmlinuz"
		-append "root=PARTUUID=504c4e46-01 rootwait rootfstype=ext4 rw init=/usr/sbin/vm-init console=ttyS0 loglevel=4 panic=-1 oops=panic${append:+ $append}"
		-serial "file:$log"
		-device nvme,id=nvme0,serial=planfence
	)
	for disk in "${disks[@]}"; do
		qemu+=(
			-drive "file=${disk//,/,,},if=none,id=disk$n,format=raw,snapshot=on,cache=unsafe"
			-device "nvme-ns,drive=disk$n,bus=nvme0,nsid=$n"
		)
		n=$((n + 1))
	done
	qemu+=(
		-device virtio-serial-pci
		-chardev file,id=control,path=/dev/fd/8
		-device virtserialport,chardev=control,nr=1
		-chardev "file,id=out,path=$run/out,append=on"
		-device virtserialport,chardev=out,nr=2
		-chardev "file,id=err,path=$run/err,append=on"
		-device virtserialport,chardev=err,nr=3
	)
	[ -z "$icount" ] || qemu+=(-icount shift=0,sleep=off)
}

vm_stop() {
	[ -n "${vm_pid:-}" ] || return 0
	kill -KILL "$vm_pid" 2>/dev/null || true
	wait "$vm_pid" 2>/dev/null || true
	vm_pid=''
}

# vm_line SECONDS: one line of the control channel into `reply`. Answers 0; 1 when
# qemu has ended; 2 when the time is over (0 means no limit).
vm_line() {
	local status=0
	reply=''
	if [ "$1" = 0 ]; then
		read -r reply <&4 || status=$?
	else
		read -t "$1" -r reply <&4 || status=$?
	fi
	[ "$status" -le 128 ] || return 2
	[ "$status" = 0 ] || return 1
}

# vm_run RUN LOG: one boot. Sets `outcome` to exit N, boot, died or timeout.
#
# Output goes through files, followed by tail: a guest that writes to a port spins in
# its kernel until the host has taken the bytes, so no reader may hold qemu up.
vm_run() {
	local run=$1 log=$2 tail_out tail_err status=0 left=$timeout
	local -a qemu
	vm_qemu_args "$run" "$log"
	rm -f "$run/out" "$run/err" "$run/control"
	: >"$run/out"
	: >"$run/err"
	mkfifo "$run/control"
	# A qemu whose script was killed must not live on.
	setpriv --pdeathsig KILL "${qemu[@]}" 8>"$run/control" </dev/null >"$log.qemu" 2>&1 &
	vm_pid=$!
	exec 4<"$run/control"
	tail -s 0.05 --pid="$vm_pid" -c +1 -f "$run/out" &
	tail_out=$!
	tail -s 0.05 --pid="$vm_pid" -c +1 -f "$run/err" >&2 &
	tail_err=$!

	if [ "$left" = 0 ] || [ "$left" -gt "$boot_timeout" ]; then left=$boot_timeout; fi
	SECONDS=0
	vm_line "$left" || status=$?
	if [ "$status" = 2 ] && [ "$left" = "$timeout" ]; then
		outcome=timeout
	elif [ "$reply" != ready ]; then
		outcome=boot
	else
		left=$timeout
		if [ "$left" != 0 ]; then
			left=$((timeout - SECONDS))
			[ "$left" -gt 0 ] || left=1
		fi
		status=0
		vm_line "$left" || status=$?
		case $status:$reply in
		0:exit\ *) outcome=$reply ;;
		2:*) outcome=timeout ;;
		*) outcome=died ;;
		esac
	fi
	# All output was in the files before the guest said "exit".
	vm_stop
	exec 4<&-
	wait "$tail_out" "$tail_err" || true
	[ -s "$log.qemu" ] || rm -f "$log.qemu"
}
