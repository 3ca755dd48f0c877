//go:build e2e

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// crowd writes what many instances would: their keys once, their reports every
// second.
type crowd struct {
	w         *world
	lease     clientv3.LeaseID
	providers map[string]int // instances of each
	began     time.Time
}

// put writes keys, many in one transaction.
func (c *crowd) put(ctx context.Context, keys map[string]any) error {
	var ops []clientv3.Op
	flush := func() error {
		_, err := c.w.client.Txn(ctx).Then(ops...).Commit()
		ops = ops[:0]
		return err
	}
	for key, value := range keys {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if ops = append(ops, clientv3.OpPut("/quotient/v1/"+key, string(text), clientv3.WithLease(c.lease))); len(ops) == 100 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(ops) == 0 {
		return nil
	}
	return flush()
}

const each = 100 // permits per second of an instance

func (c *crowd) join(ctx context.Context) error {
	keys := map[string]any{}
	for p, n := range c.providers {
		for i := range n {
			keys[fmt.Sprintf("providers/%s/instances/worker-%d.1.1", p, i)] = map[string]any{
				"schema": 1, "name": fmt.Sprintf("worker-%d", i), "host": fmt.Sprintf("node-%d", i%40), "pid": 4711, "version": "v1.2.3", "started": c.began,
			}
		}
	}
	return c.put(ctx, keys)
}

// report writes everybody's report of this second.
func (c *crowd) report(ctx context.Context, revision int64, now time.Time) error {
	keys := map[string]any{}
	second := now.Truncate(time.Second)
	done := int64(second.Sub(c.began) / time.Second)
	for p, n := range c.providers {
		for i := range n {
			keys[fmt.Sprintf("reports/%s/worker-%d.1.1", p, i)] = protocol.Report{
				Schema: 1, Name: fmt.Sprintf("worker-%d", i), State: quota.StateActive, Revision: revision, PolicyRevision: revision,
				Total: int64(each * n), Share: each, Instances: n, Used: each * (done + 1), WindowStart: second, UsedBefore: each * done,
				Refused: done * int64(i%7), Waiting: int64(i % 3), ClockError: "1.2ms", ClockSource: "ntp", ProofAge: "120ms", Time: now,
			}
		}
	}
	return c.put(ctx, keys)
}

// newCrowd sets the policies and lets the crowd report until the test ends.
func newCrowd(t *testing.T, w *world, providers map[string]int) {
	t.Helper()
	lease, err := w.client.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{w: w, lease: lease.ID, providers: providers, began: time.Now().Truncate(time.Second).Add(-time.Hour)}
	for p, n := range providers {
		w.set(p, fmt.Sprintf("%d/s", max(1, each*n)))
	}
	if err := c.join(t.Context()); err != nil {
		t.Fatal(err)
	}
	revision := w.revision("p-0")
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	t.Cleanup(func() { end(); <-done })
	go func() {
		defer close(done)
		for tick := time.NewTicker(time.Second); ; {
			if err := c.report(ctx, revision, time.Now()); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	}()
}

// cpu returns the processor time that a process has used, of Linux's /proc.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text)[strings.LastIndex(string(text), ")")+1:])
	ticks := 0
	for _, f := range fields[11:13] { // user and system time
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// frames measures a while of the page, in which it scrolls: distances between
// frames, and tasks of more than 50 ms.
const frames = `new Promise((done) => {
	const gaps = [], long = [];
	const observer = new PerformanceObserver((list) => { for (const e of list.getEntries()) long.push(Math.round(e.duration)); });
	observer.observe({entryTypes: ["longtask"]});
	const box = document.querySelector("#instances"), began = performance.now();
	let last = began;
	const frame = (now) => {
		gaps.push(now - last);
		last = now;
		box.scrollTop = (box.scrollTop + 40) %% Math.max(1, box.scrollHeight - box.clientHeight);
		if (now - began < %d) { requestAnimationFrame(frame); return; }
		gaps.sort((a, b) => a - b);
		observer.disconnect();
		done({frames: gaps.length, median: gaps[gaps.length >> 1], p99: gaps[Math.floor(gaps.length * 0.99)], max: gaps.at(-1), long, nodes: document.querySelectorAll("*").length});
	};
	requestAnimationFrame(frame);
})`

// TestLoad: 20 providers and 1,000 instances, spread or all of one provider. It
// measures, and fails only if the page does not show them: DASHBOARD_LOAD says
// for how long, as 30s; by default briefly.
func TestLoad(t *testing.T) {
	measure := 5 * time.Second
	if text := os.Getenv("DASHBOARD_LOAD"); text != "" {
		var err error
		if measure, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name       string
		of, others int // instances of the provider that is opened, and of each other
	}{{"20 providers of 50 instances", 50, 50}, {"20 providers, one of 810 instances, the others of 10", 810, 10}} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			w := newWorld(t)
			providers := map[string]int{"p-0": c.of}
			for i := 1; i < 20; i++ {
				providers[fmt.Sprintf("p-%d", i)] = c.others
			}
			newCrowd(t, w, providers)
			p := w.dashboard()
			b := openTab(t, desktop)
			b.Visit(p.link + "#/p-0")
			b.Until("20 providers", `document.querySelectorAll("#providers a.row").length === 20`)
			b.Until("a steady chart", steady)
			b.Shows("#instances-count", strconv.Itoa(c.of))
			b.Until("that every provider issues", `[...document.querySelectorAll("#providers a.row")].every((r) => /[1-9]/.test(r.querySelector(".number").textContent))`)
			b.Shot("load-" + strconv.Itoa(c.of))
			before, began := cpu(t, p.pid), time.Now()
			type result struct {
				Frames, Nodes    int
				Median, P99, Max float64
				Long             []float64
			}
			r := result{}
			for began := time.Now(); time.Since(began) < measure; {
				part := get[result](b, fmt.Sprintf(frames, 5000))
				r.Frames, r.Nodes = r.Frames+part.Frames, part.Nodes
				r.Median, r.P99, r.Max = max(r.Median, part.Median), max(r.P99, part.P99), max(r.Max, part.Max)
				r.Long = append(r.Long, part.Long...)
			}
			used, elapsed := cpu(t, p.pid)-before, time.Since(began)
			t.Logf("%s: the dashboard used %.1f%% of a core in %v; page: %d frames, median %.1f ms, p99 %.1f ms, max %.1f ms, tasks over 50 ms: %v, %d nodes",
				c.name, 100*used.Seconds()/elapsed.Seconds(), elapsed.Round(time.Second), r.Frames, r.Median, r.P99, r.Max, r.Long, r.Nodes)
		})
	}
}
