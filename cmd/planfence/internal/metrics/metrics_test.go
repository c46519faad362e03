package metrics

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for addr, want := range map[string]string{
		"9100": "127.0.0.1:9100", ":9100": "127.0.0.1:9100", "localhost:9100": "127.0.0.1:9100", "127.0.0.1:0": "127.0.0.1:0",
		"0.0.0.0:9100": "0.0.0.0:9100", "[::1]:9100": "[::1]:9100", "[::]:9100": "[::]:9100", "10.1.2.3:80": "10.1.2.3:80",
		"example.org:80": "", "": "", "x": "", ":x": "", "1.2.3.4": "", ":70000": "", "70000": "", "http://127.0.0.1:80": "", "*:80": "",
	} {
		got, err := parse(addr)
		if want == "" && err == nil || want != "" && (err != nil || got.String() != want) {
			t.Errorf("%q is %v (%v), want %q", addr, got, err, want)
		}
	}
}

func TestServe(t *testing.T) {
	l, err := Listen("0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(l.Addr().String()); err == nil || !strings.Contains(err.Error(), "serve metrics on 127.0.0.1:") {
		t.Errorf("the same address again: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	n := uint64(0)
	go func() {
		done <- Serve(ctx, l, func() Snapshot {
			n++
			return Snapshot{
				Session: "s-1", Blocks: map[Key]uint64{{"T1", "open", "scope", "block"}: n, {"a\"b\n", "open", "scope", "block"}: 7},
				Kernel: map[Key]uint64{{"", "open", "scope", "block"}: n + 7}, Lost: 3, SyncAge: 1500 * time.Millisecond, Sessions: 2,
			}
		})
	}()
	get := func(path string) (int, string) {
		t.Helper()
		r, err := http.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(b)
	}
	get("/metrics")
	_, text := get("/metrics")
	for _, want := range []string{
		`planfence_blocks_total{op="open",reason="scope",task="T1",verdict="block"} 2`, `task="a\"b\n"`, "planfence_lost_records_total 3",
		`planfence_kernel_refusals_total{op="open",reason="scope",verdict="block"} 9`, "planfence_sync_age_seconds 1.5", "planfence_sessions 2",
		"# TYPE planfence_blocks_total counter",
	} {
		if !strings.Contains(text, want+"\n") && !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if code, _ := get("/"); code != http.StatusNotFound {
		t.Errorf("/ answers %d", code)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
