// Package bpf holds the fence's BPF programs, compiled, and the Go side of the
// types that they share with user space. Both are generated from the C sources
// in this directory by `make generate` and committed.
//
// There are two objects from one source: [LoadLsm] for kernels whose active
// list of security modules has bpf in it, and [LoadFmod] (fmod_ret programs on
// the security_* functions) for those without.
package bpf

//go:generate go tool bpf2go -cc $CLANG -strip $LLVM_STRIP -target bpfel -go-package bpf -no-global-types -type event -type label -type scope_header -type anchor -type object -type answer -type session_row -type link_key -type member -type op -type reason -type scope_flag -type event_flag -type limit -type role -type state -type name Lsm fence.bpf.c -- -mcpu=v3 -O2 -g -Wall -Werror -Wno-unused-function -fno-ident
//go:generate go tool bpf2go -cc $CLANG -strip $LLVM_STRIP -target bpfel -go-package bpf -no-global-types Fmod fence.bpf.c -- -mcpu=v3 -O2 -g -Wall -Werror -Wno-unused-function -fno-ident -DFMOD_RET
