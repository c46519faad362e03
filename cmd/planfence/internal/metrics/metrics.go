// Package metrics serves a session's counters as Prometheus text: the only part
// of the program that listens on the network, and only where it is asked to.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Key tells refusals apart.
type Key struct{ Task, Op, Reason, Verdict string }

// Snapshot is what a session tells at one moment.
type Snapshot struct {
	Session, Version, Attach, Mode string

	Blocks     map[Key]uint64 // as recorded, by task
	Kernel     map[Key]uint64 // the kernel's own totals, which know no task; exact whatever happens to records
	Lost       uint64         // refusals that have no record
	Misses     uint64         // runs of programs that the kernel skipped
	SyncAge    time.Duration  // since the scope in force was put in force
	Stale      time.Duration  // since plan and scope are out of step; 0: they are not
	Generation uint64
	Sessions   int // of the machine
}

// Listen opens an address. Without a host it is on loopback; any other is
// taken only as a number, so that nobody serves the network by a mistake.
func Listen(addr string) (net.Listener, error) {
	at, err := parse(addr)
	if err != nil {
		return nil, fmt.Errorf("serve metrics on %s: %w", addr, err)
	}
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		var oe *net.OpError
		if errors.As(err, &oe) {
			err = oe.Err
		}
		return nil, fmt.Errorf("serve metrics on %s: %w", at, err)
	}
	return l, nil
}

func parse(addr string) (netip.AddrPort, error) {
	host, port := "", addr
	if _, err := strconv.ParseUint(addr, 10, 16); err != nil {
		if host, port, err = net.SplitHostPort(addr); err != nil {
			return netip.AddrPort{}, errors.New("it is no address with a port")
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is no port", port)
	}
	ip := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if host != "" && host != "localhost" {
		if ip, err = netip.ParseAddr(host); err != nil {
			return netip.AddrPort{}, fmt.Errorf("%q is neither localhost nor an address in numbers", host)
		}
	}
	return netip.AddrPortFrom(ip, uint16(n)), nil
}

// Serve answers GET /metrics until ctx ends. now is asked for each answer.
func Serve(ctx context.Context, l net.Listener, now func() Snapshot) error {
	reg := prometheus.NewRegistry()
	if err := reg.Register(collector(now)); err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve metrics: %w", err)
	case <-ctx.Done():
	}
	// now is not asked any more once this returns.
	patience, stop := context.WithTimeout(context.Background(), lastAnswers)
	defer stop()
	if err := s.Shutdown(patience); err != nil {
		return fmt.Errorf("serve metrics: end: %w", errors.Join(err, s.Close()))
	}
	return nil
}

// lastAnswers is how long answers that have begun may take at the end.
const lastAnswers = 2 * time.Second

// collector gives a snapshot's values.
type collector func() Snapshot

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("planfence_"+name, help, labels, nil)
}

var (
	info       = desc("session_info", "The session: 1.", "session", "version", "attach", "mode")
	blocks     = desc("blocks_total", "Refusals as recorded, by task, operation and reason.", "task", "op", "reason", "verdict")
	kernel     = desc("kernel_refusals_total", "Refusals as the kernel counts them, exact whatever happens to records.", "op", "reason", "verdict")
	lost       = desc("lost_records_total", "Refusals that have no record of their own.")
	misses     = desc("recursion_misses_total", "Runs of programs that the kernel skipped; anything but 0 means that the fence had gaps.")
	syncAge    = desc("sync_age_seconds", "Time since the scope in force was put in force.")
	stale      = desc("stale_seconds", "Time since plan and scope are out of step; 0 if they are not.")
	generation = desc("scope_generation", "Number of the scope in force, from 1.")
	sessions   = desc("sessions", "Sessions on this machine.")
)

// Describe implements [prometheus.Collector].
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{info, blocks, kernel, lost, misses, syncAge, stale, generation, sessions} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(info, 1, s.Session, s.Version, s.Attach, s.Mode)
	for k, n := range s.Blocks {
		counter(blocks, n, k.Task, k.Op, k.Reason, k.Verdict)
	}
	for k, n := range s.Kernel {
		counter(kernel, n, k.Op, k.Reason, k.Verdict)
	}
	counter(lost, s.Lost)
	counter(misses, s.Misses)
	gauge(syncAge, s.SyncAge.Seconds())
	gauge(stale, s.Stale.Seconds())
	gauge(generation, float64(s.Generation))
	gauge(sessions, float64(s.Sessions))
}
