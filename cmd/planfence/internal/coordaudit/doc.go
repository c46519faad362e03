// Package coordaudit judges the turns of a coordinator: an agent that hands
// work to other agents and writes nothing itself. It reads a ledger of turns,
// JSON Lines, or builds one from the block log.
package coordaudit
