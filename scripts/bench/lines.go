package main

import (
	"bufio"
	"errors"
	"io"
)

var errEnd = errors.New("no more lines")

type lines struct{ sc *bufio.Scanner }

func newLines(r io.Reader) *lines { return &lines{bufio.NewScanner(r)} }

func (l *lines) next() (string, error) {
	if l.sc.Scan() {
		return l.sc.Text(), nil
	}
	if err := l.sc.Err(); err != nil {
		return "", err
	}
	return "", errEnd
}
