#!/bin/bash
# The story that scripts/demo plays, as an ordinary user who may use sudo. One
# "agent" (a shell that takes orders) works through three tasks of a plan in one
# checkout; the operator switches the task; the kernel holds the agent to it.
set -euo pipefail

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' plain=$'\e[0m'; fi
step() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
show() { printf '$ %s\n' "$*" && "$@"; }

work=$(mktemp -d "${TMPDIR:-/tmp}/planfence-demo.XXXXXX")
mkdir "$work/slugs" && cd "$work/slugs"
cleanup() { cd / && rm -rf "$work"; }
trap cleanup EXIT

# order COMMAND: the agent runs it; returns when it is done.
order() {
	printf '%s\n' "$1" >&"${agent[1]}"
	while IFS= read -r line <&"${agent[0]}"; do
		[ "$line" != "-- done" ] || return 0
		printf '%s\n' "$line"
	done
	echo "demo: the agent is gone" >&2
	return 1
}
# blocks N: wait until the log tells of N blocks: the companion reads on a timer.
blocks() {
	for _ in $(seq 200); do
		[ "$(grep -c '"kind":"block"' .claude/blocked.log)" -lt "$1" ] || return 0
		sleep 0.05
	done
	echo "demo: $1 blocks expected, the log has fewer" >&2
	return 1
}

step "A small project under git"
git init -q -b main .
git config user.name Demo
git config user.email demo@example.com
mkdir src test docs .claude
echo '# slugs' >README.md
printf '%s\n' blocked.log active-task >.claude/.gitignore
echo '{"tasks": [{"id": "PM", "title": "write the plan", "scope": [".claude/plan.json"]}]}' >.claude/plan.json
git add .
git commit -qm 'start'
show git log --oneline

step "The operator starts one agent inside the fence, with the task PM"
planfence task PM
cat >"$work/agent.sh" <<'SH'
while IFS= read -r order; do
	printf 'agent$ %s\n' "$order"
	bash -c "$order" </dev/null 2>&1 | sed 's/^/       /'
	echo '-- done'
done
SH
began=$(date +%s%N)
echo '$ sudo planfence run -- agent'
coproc agent { exec sudo -n planfence run -- bash "$work/agent.sh"; } 2>&1
order 'id -un'

step "PM writes the plan; it is linted and committed"
cat >"$work/plan.json" <<'JSON'
{ "tasks": [
  {"id": "PM", "title": "write the plan", "scope": [".claude/plan.json"]},
  {"id": "T1", "title": "slug helper",    "scope": ["src/slug.js", "test/slug.test.js"]},
  {"id": "T2", "title": "word count",     "scope": ["src/count.js"]},
  {"id": "T3", "title": "usage docs",     "scope": ["docs/", "README.md"]} ] }
JSON
order "cp $work/plan.json .claude/plan.json"
show planfence lint
order "git add .claude/plan.json && git commit -qm 'plan' && git log --oneline -1"

step "T1 writes its two files and commits"
show planfence task T1
order "echo 'module.exports = s => s.toLowerCase().replace(/[^a-z0-9]+/g, \"-\")' > src/slug.js"
order "echo 'require(\"assert\").equal(require(\"../src/slug\")(\"A b\"), \"a-b\")' > test/slug.test.js"
order "if command -v node >/dev/null; then node test/slug.test.js; fi && git add src test && git commit -qm 'T1: slug helper' && git log --oneline -1"

step "T2 writes its own file, then is told to edit T1's: twice, both blocked"
show planfence task T2
order "echo 'module.exports = s => s.split(/\\s+/).length' > src/count.js"
order "git add src/count.js && git commit -qm 'T2: word count' && git log --oneline -1"
before=$(sha256sum src/slug.js)
if command -v node >/dev/null; then
	echo "  once as a plain file write from a Node program:"
	order "node -e 'require(\"fs\").writeFileSync(\"src/slug.js\", \"// mine\")' 2>&1 | grep Error:"
else
	echo "  once as a plain file write from a Python program:"
	order "python3 -c 'open(\"src/slug.js\", \"w\").write(\"// mine\")' 2>&1 | grep Error:"
fi
echo "  once by shell redirect:"
order "echo '// mine' >> src/slug.js"
blocks 2
[ "$before" = "$(sha256sum src/slug.js)" ] && echo "  src/slug.js is what it was"

step "T3 writes docs"
show planfence task T3
order "echo 'slug(\"A b\") is \"a-b\"' > docs/usage.md && echo 'See docs/usage.md' >> README.md"
order "git add docs README.md && git commit -qm 'T3: usage docs' && git log --oneline -1"

step "The end: the block log, git, and the run measured"
exec {agent[1]}>&-
wait "$agent_PID"
ended=$(date +%s%N)
cat .claude/blocked.log | grep '"kind":"block"'
show git status --short
show git log --oneline
printf 'elapsed %d.%03d s, %d blocks, %d commits during the run\n' \
	$(((ended - began) / 1000000000)) $(((ended - began) / 1000000 % 1000)) \
	"$(grep -c '"kind":"block"' .claude/blocked.log)" "$(($(git rev-list --count HEAD) - 1))"
