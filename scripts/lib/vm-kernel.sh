# Stock Debian kernels, one directory a line: vmlinuz, config, release, package and
# modules.img (an ext4 image of /usr/lib/modules). Sourced by scripts/vm.

# shellcheck shell=bash
# shellcheck disable=SC2154 # options and paths are set by scripts/vm

# vm_kernel_packages: "VERSION PACKAGE" of every cloud kernel that the suites hold,
# oldest first.
vm_kernel_packages() {
	vm_apt apt-cache dumpavail | awk '
		/^Package: / { name = $2 }
		/^Version: / && name ~ /^linux-image-[0-9.]+[^-]*(-[0-9]+)?-cloud-amd64$/ {
			print $2, name
		}' | sort -V
}

# vm_kernel_resolve LINE: "VERSION PACKAGE" of the newest package of LINE. A line
# that has left the archive is replaced by the oldest later one.
vm_kernel_resolve() {
	vm_kernel_packages | awk -v want="$1" '
		function number(line, part) {
			split(line, part, ".")
			return part[1] * 1000 + part[2]
		}
		{
			split($1, v, ".")
			line = number(v[1] "." (v[2] + 0))
			if (line < number(want) || (best && line > best)) next
			best = line
			found = $0
		}
		END { print found }'
}

# vm_kernel_unpack DIR VERSION PACKAGE: downloads and unpacks an image package and
# what Debian has split off from it since 7.2.
vm_kernel_unpack() {
	local dir=$1 version=$2 package=$3 deb
	local -a wanted=("$package=$version")
	while read -r deb; do
		# Backports of 6.18 depend on a linux-base-* that the archive lacks; what is
		# needed of it is in the image package there.
		[ -z "$(vm_apt apt-cache show "$deb=$version" 2>/dev/null)" ] ||
			wanted+=("$deb=$version")
	done < <(vm_apt apt-cache show "$package=$version" | sed -n 's/^Depends: //p' |
		tr ',' '\n' | sed -nE 's/^ *(linux-(binary|modules|base)-[0-9][^ ]*-cloud-amd64)( .*)?$/\1/p')
	vm_say "fetching ${wanted[*]}"
	mkdir -p "$dir/debs" "$dir/tree"
	(cd "$dir/debs" && vm_apt apt-get download "${wanted[@]}") >"$dir/log" 2>&1 ||
		vm_fail "cannot fetch ${wanted[*]}: $(tail -n 1 "$dir/log")" \
			'check that the mirror answers: apt-get update'
	for deb in "$dir"/debs/*.deb; do
		dpkg-deb -x "$deb" "$dir/tree"
	done
	if [ -d "$dir/tree/lib" ]; then
		cp -a "$dir/tree/lib/." "$dir/tree/usr/lib/"
		rm -r "$dir/tree/lib"
	fi
	rm -r "$dir/debs"
}

# vm_kernel_build LINE OUT: makes a kernel directory and the link OUT to it. A run
# that has followed the link goes on with its directory when --update moves the link.
vm_kernel_build() {
	local line=$1 out=$2 work version package release modules file from made
	vm_apt_update
	read -r version package < <(vm_kernel_resolve "$line") || true
	[ -n "${package:-}" ] ||
		vm_fail "no kernel of line $line: none of ${vm_suites[*]} has it or a later one" \
			'scripts/vm --help lists the lines that are tested'
	case $version in "$line".*) ;; *)
		vm_say "kernel line $line has left the archive, taking $version"
		;;
	esac
	work=$(mktemp -d "$vm_cache/kernel.XXXXXX")
	vm_kernel_unpack "$work" "$version" "$package"
	set -- "$work"/tree/usr/lib/modules/*/
	release=$(basename "$1")
	modules=$work/tree/usr/lib/modules/$release
	mkdir "$work/out"
	for file in vmlinuz config; do
		from=$(vm_first "$modules/$file" "$work/tree/boot/$file-$release") ||
			vm_fail "$package $version has no $file" \
				'Debian may have split the package further: see vm_kernel_unpack'
		mv "$from" "$work/out/$file"
	done
	rm -f "$modules/build" "$modules/source"
	# depmod looks in lib/modules below its base directory.
	ln -s usr/lib "$work/tree/lib"
	depmod -b "$work/tree" "$release"
	vm_ext4 "$work/out/modules.img" "$work/tree/usr/lib/modules" 0
	echo "$release" >"$work/out/release"
	echo "$package $version" >"$work/out/package"
	made=$(mktemp -d "$out.XXXXXX")
	mv -T "$work/out" "$made"
	chmod 755 "$made"
	ln -s "$(basename "$made")" "$work/link"
	mv -T "$work/link" "$out"
	rm -rf "$work"
}
