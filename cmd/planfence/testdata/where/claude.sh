printf 'alpha\n' > f
## act
# How Claude Code saves a file and keeps its state.
cat > "$TMPDIR/save.js" <<'J'
const fs = require("fs"), crypto = require("crypto"), os = require("os"), path = require("path")
function save(file, text) {
  const tmp = `${file}.tmp.${process.pid}.${crypto.randomBytes(6).toString("hex")}`
  const mode = fs.existsSync(file) ? fs.statSync(file).mode : 0o644
  fs.writeFileSync(tmp, text, { flush: true })
  fs.chmodSync(tmp, mode)
  fs.renameSync(tmp, file)
}
const home = os.homedir(), dir = path.join(home, ".claude", "projects", "-home-dev-p")
fs.mkdirSync(dir, { recursive: true })
fs.appendFileSync(path.join(dir, "session.jsonl"), "{}\n")
fs.mkdirSync(path.join(home, ".claude", "todos"), { recursive: true })
save(path.join(home, ".claude", "todos", "a.json"), "[]")
save(path.join(home, ".claude.json"), "{}")
save("f", "beta\n")
J
node "$TMPDIR/save.js"
grep -qx beta f
