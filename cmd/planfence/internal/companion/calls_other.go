//go:build !amd64

package companion

var olderCalls []int
