## act
bwrap --unshare-user --unshare-pid --unshare-ipc --ro-bind / / --bind "$PWD" "$PWD" --tmpfs /run --proc /proc --dev /dev \
	--chdir "$PWD" sh -ec 'echo mine > f; mkdir d; mv f d/g; echo tmp > /run/x; rm /run/x; test "$$" -lt 20'
grep -qx mine d/g
