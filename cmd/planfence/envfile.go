package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
)

// readEnvFile reads lines NAME=VALUE, taken as they are, without quotes or
// expansions; NAME alone takes the caller's value. Empty lines and lines that
// begin with # are left out.
func readEnvFile(path string, getenv func(string) string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, hinted(fmt.Errorf("read --env-file %s: %w", path, cause(err)), "--env-file names a file of NAME=VALUE lines")
	}
	var out []string
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, len(b)+1)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSuffix(sc.Text(), "\r")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if name == "" || strings.ContainsAny(name, " \t") || strings.ContainsRune(line, 0) {
			return nil, hinted(fmt.Errorf("read --env-file %s:%d: %q is no NAME=VALUE", path, n, line), "write one NAME=VALUE a line, without export or spaces")
		}
		if !ok {
			value = getenv(name)
		}
		out = append(out, name+"="+value)
	}
	return out, nil
}
