package loader

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"sync"
)

// overlayText returns where the code of overlayfs lies, 0 if that cannot be
// told: as a module from /proc/modules, proc_modules(5), built in from
// /proc/kallsyms. Both show addresses to root alone.
func overlayText() (start, end uint64) {
	each("/proc/modules", func(f []string) {
		// name size users by state address
		if len(f) < 6 || f[0] != "overlay" {
			return
		}
		size, err1 := strconv.ParseUint(f[1], 10, 64)
		addr, err2 := strconv.ParseUint(strings.TrimPrefix(f[5], "0x"), 16, 64)
		if err1 == nil && err2 == nil && addr != 0 {
			start, end = addr, addr+size
		}
	})
	if start != 0 {
		return start, end
	}
	builtIn := false
	each("/proc/filesystems", func(f []string) { builtIn = builtIn || f[len(f)-1] == "overlay" })
	if builtIn {
		start, end = builtInText()
	}
	return start, end
}

// builtInText looks through the kernel's symbols, once: they do not change.
var builtInText = sync.OnceValues(func() (start, end uint64) {
	each("/proc/kallsyms", func(f []string) {
		// address type name; a fourth field names a module
		if len(f) != 3 || !strings.HasPrefix(f[2], "ovl_") || strings.ToLower(f[1]) != "t" {
			return
		}
		addr, err := strconv.ParseUint(f[0], 16, 64)
		if err != nil || addr == 0 {
			return
		}
		if start == 0 || addr < start {
			start = addr
		}
		if addr >= end {
			end = addr + 1
		}
	})
	return start, end
})

func each(path string, f func([]string)) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	for sc := bufio.NewScanner(file); sc.Scan(); {
		if w := strings.Fields(sc.Text()); len(w) > 0 {
			f(w)
		}
	}
}
