package bpf

// LsmELF returns the compiled LSM programs, an ELF file.
func LsmELF() []byte { return _LsmBytes }

// FmodELF returns the compiled fmod_ret programs, an ELF file.
func FmodELF() []byte { return _FmodBytes }
