//go:build vm

package main_test

// arm64 has neither system call: the kernel says ENOSYS to these numbers.
const (
	sysIopl   = 0xfff0
	sysIoperm = 0xfff1
)
