// A small agent that speaks Claude Code's hook protocol: it reads its hooks from
// .claude/settings.json, asks them before each tool call and tells them after.
// Its "model" is the list of calls on standard input, one JSON object a line; it
// prints what came of each, one JSON object a line.
'use strict'
const fs = require('fs')
const { spawnSync } = require('child_process')

const cwd = process.cwd()
const hooks = JSON.parse(fs.readFileSync('.claude/settings.json', 'utf8')).hooks
let calls = 0

// ask runs the hooks of an event; a hook that exits with 2 refuses.
function ask(event, call, more) {
  const payload = {
    session_id: 'agent-1', transcript_path: '/dev/null', cwd, permission_mode: 'default', hook_event_name: event,
    tool_name: call.tool, tool_input: call.input, tool_use_id: call.id, ...more,
  }
  const out = { refused: false, reason: '', context: '' }
  for (const group of hooks[event] || []) {
    if (!new RegExp(`^(?:${group.matcher})$`).test(call.tool)) continue
    for (const hook of group.hooks) {
      const r = spawnSync('sh', ['-c', hook.command], {
        input: JSON.stringify(payload), encoding: 'utf8', env: { ...process.env, CLAUDE_PROJECT_DIR: cwd },
      })
      if (r.status === 2) Object.assign(out, { refused: true, reason: r.stderr })
      else if (r.status !== 0) throw new Error(`hook: status ${r.status}: ${r.stderr}`)
      else if (r.stdout) out.context += JSON.parse(r.stdout).hookSpecificOutput.additionalContext
    }
  }
  return out
}

const tools = {
  Write({ file_path, content }) { fs.writeFileSync(file_path, content) },
  Bash({ command }) {
    const r = spawnSync('sh', ['-c', command], { encoding: 'utf8' })
    if (r.status !== 0) throw new Error(`status ${r.status}: ${r.stderr}`)
    return { stdout: r.stdout, stderr: r.stderr }
  },
}

for (const line of fs.readFileSync(0, 'utf8').trim().split('\n')) {
  const call = { id: `toolu_${++calls}`, ...JSON.parse(line) }
  const before = ask('PreToolUse', call)
  let said = { context: '' }, error = ''
  if (!before.refused) {
    try {
      said = ask('PostToolUse', call, { tool_response: tools[call.tool](call.input) || {} })
    } catch (e) {
      error = String(e.message)
      said = ask('PostToolUseFailure', call, { error })
    }
  }
  console.log(JSON.stringify({ refused: before.refused, reason: before.reason, error, context: said.context }))
}
