// Package loader puts the fence into the kernel and keeps it there: it loads
// and attaches the BPF programs, pins them so that several processes share one
// set, and manages sessions, each of which is one row of the programs' maps.
//
// It knows nothing of plans in JSON: a scope reaches it as a compiled table
// ([plan.Table]) and a list of anchor directories.
//
// # Lifetime
//
// [Open] returns the fence that is pinned for this build of the programs, or
// loads, attaches and pins it. Programs and maps outlive the process: closing a
// [Fence] or a [Session] frees descriptors only, and fenced processes stay
// fenced. [Session.End] takes a session's row away once none of its processes
// is left, and the last session takes the programs along.
//
// Everything here needs CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN in the initial
// user namespace, which is to say root on the host or in a privileged
// container.
package loader
