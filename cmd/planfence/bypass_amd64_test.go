//go:build vm

package main_test

// System calls of this architecture alone.
const (
	sysIopl   = 172
	sysIoperm = 173
)
