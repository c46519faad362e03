// Package plantest has what tests of scopes share, here and on a kernel: a slow,
// obvious matcher to compare with, and a generator of scopes and paths. It shares
// no code with package plan, so that it can disagree.
package plantest
