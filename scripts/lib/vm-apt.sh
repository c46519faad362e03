# A private apt state for the suites that the VM's kernels and root come from.
# Sourced by scripts/vm. The machine's own apt configuration is read (mirror,
# proxy), never written.

# shellcheck shell=bash
# shellcheck disable=SC2154 # options and paths are set by scripts/vm

vm_suites=(bookworm bookworm-security trixie trixie-security trixie-backports forky)
vm_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# vm_mirror PATTERN DEFAULT: the first of the machine's archives that matches.
vm_mirror() {
	local uri
	# shellcheck disable=SC2016 # apt expands the field, not the shell
	while read -r uri; do
		# shellcheck disable=SC2254 # a pattern is wanted
		case $uri in $1)
			echo "${uri%/}"
			return
			;;
		esac
	done < <(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null)
	echo "$2"
}

# vm_sources SUITE...: sources.list lines.
vm_sources() {
	local suite mirror security
	mirror=$(vm_mirror '*/debian/' http://deb.debian.org/debian)
	security=$(vm_mirror '*/debian-security/' http://deb.debian.org/debian-security)
	for suite; do
		case $suite in
		*-security) echo "deb [signed-by=$vm_keyring] $security $suite main" ;;
		*) echo "deb [signed-by=$vm_keyring] $mirror $suite main" ;;
		esac
	done
}

# vm_apt PROGRAM ARG...: apt-get or apt-cache on the private state.
vm_apt() {
	local program=$1
	shift
	"$program" -q -c "$vm_cache/apt/apt.conf" "$@"
}

# vm_apt_update: fetches the suites' metadata when they are older than an hour or
# --update is given.
vm_apt_update() {
	local apt=$vm_cache/apt
	if [ -z "$update" ] && [ -n "$(find "$apt/updated" -mmin -60 2>/dev/null)" ]; then
		return
	fi
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/empty"
	vm_sources "${vm_suites[@]}" >"$apt/sources.list"
	# The hooks and the extra index files of a desktop's configuration stay out.
	cat >"$apt/apt.conf" <<-CONF
		#clear APT::Update::Pre-Invoke;
		#clear APT::Update::Post-Invoke;
		#clear APT::Update::Post-Invoke-Success;
		#clear Acquire::IndexTargets::deb::DEP-11;
		#clear Acquire::IndexTargets::deb::CNF;
		Dir::Etc::sourcelist "$apt/sources.list";
		Dir::Etc::sourceparts "$apt/empty";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "$apt/empty";
		Dir::State::lists "$apt/lists";
		Dir::State::status "/dev/null";
		Dir::Cache "$apt/cache";
		APT::Architecture "${vm_arch:-amd64}";
		APT::Architectures { "${vm_arch:-amd64}"; };
		APT::Sandbox::User "root";
		Acquire::Languages "none";
	CONF
	vm_say 'reading the metadata of the suites'
	vm_apt apt-get update >"$apt/update.log" 2>&1 ||
		vm_fail "cannot read the suites' metadata: apt-get update failed" \
			"see $apt/update.log; scripts/setup installs the archive's keyring"
	touch "$apt/updated"
}
