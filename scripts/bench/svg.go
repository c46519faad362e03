package main

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// The chart's bars: one row's extra instructions, a bar a column.
var charted = []string{
	"open for writing, depth 2", "open for writing, depth 7", "open for writing, depth 20",
	"create and unlink, depth 7", "rename, two, depth 7", "mkdir and rmdir, depth 7", "refused open, depth 7",
}

var colours = map[string]string{"empty": "#bbbbbb", "attached": "#8fb8de", "fenced": "#1f6feb", "landlock": "#d29922", "apparmor": "#a371f7"}

func writeSVG(w io.Writer, run *Run) {
	const width, left, bar, gap, scale = 860, 190, 13, 18, 560
	v := run.index()
	extra := func(row, column string) (int64, bool) {
		off, ok1 := baseline(v, row)
		x, ok2 := v[key{row, "dir", column}]
		return x - off, ok1 && ok2
	}
	most := int64(1)
	height := 70
	for _, row := range charted {
		for _, c := range columns {
			if x, ok := extra(row, c); ok {
				most = max(most, x)
				height += bar
			}
		}
		height += gap
	}
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", width, height)
	fmt.Fprintf(w, `<rect width="100%%" height="100%%" fill="white"/><text x="10" y="20" font-size="14">Extra instructions over no fence, Linux %s, %s</text>`+"\n",
		html.EscapeString(run.Kernel), html.EscapeString(run.Date))
	x := 10
	for _, c := range columns {
		fmt.Fprintf(w, `<rect x="%d" y="32" width="11" height="11" fill="%s"/><text x="%d" y="42">%s</text>`+"\n", x, colours[c], x+15, c)
		x += 30 + 8*len(c)
	}
	y := 60
	for _, row := range charted {
		top := y
		for _, c := range columns {
			n, ok := extra(row, c)
			if !ok {
				continue
			}
			fmt.Fprintf(w, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/><text x="%d" y="%d">%+d</text>`+"\n",
				left, y, max(1, n*scale/most), bar-2, colours[c], left+int(max(1, n*scale/most))+4, y+bar-3, n)
			y += bar
		}
		if y > top {
			fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-8, (top+y)/2+4, html.EscapeString(strings.Replace(row, ", two", " twice", 1)))
			y += gap
		}
	}
	fmt.Fprintln(w, `</svg>`)
}
