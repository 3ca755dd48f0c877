// Command overshoot compares limiters as black boxes: processes aim at one limit, and one judge
// counts their calls.
//
//	go run ./overshoot                              all limiters, with 4 and with 8 processes
//	go run ./overshoot -n 4 -peer 'quotient|redis'
//
// Each process tells when it calls. All but one begin together. One of them has most of the load,
// another one every 3 s. One process joins, one is killed, and the limit is halved. The calls wanted
// are 1.5 times the limit, or more. It prints lines of Go's benchmarks.
//
// It fails if Quotient is over its limit.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/bench/peer"
	"github.com/quotient-limiter/quotient/internal/embedded"
)

var (
	sizes    = flag.String("n", "4,8", "processes, with commas between sizes")
	limit    = flag.Int64("limit", 1000, "the limit, in calls a second")
	length   = flag.Duration("for", 24*time.Second, "how long a limiter is used")
	which    = flag.String("peer", ".", "a regular expression of names of limiters")
	together = flag.Int("together", 4, "limiters that are used at the same time")
	role     = flag.String("caller", "", "the limiter of this process, which is a caller")
	server   = flag.String("server", "", "the server of a caller")
)

func main() {
	embedded.RunIfMember()
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *role != "" {
		err = call(ctx, *role, *limit, *server)
	} else {
		err = compare(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "overshoot:", err)
		os.Exit(1)
	}
}

// compare uses the limiters, some at a time, and prints the verdicts.
func compare(ctx context.Context) error {
	wanted, err := regexp.Compile(*which)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "overshoot")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	tools := &tools{folder: folder}
	for _, p := range peers {
		if !wanted.MatchString(p.name) {
			continue
		}
		if p.kind == java && tools.classpath == "" {
			if tools.classpath, err = peer.BuildJava(ctx, ".", folder+"/java"); err != nil {
				return err
			}
		}
		if p.kind == gubernator && tools.gubernator == "" {
			if tools.gubernator, err = peer.BuildGubernator(ctx, ".", folder); err != nil {
				return err
			}
		}
	}
	var mu sync.Mutex // of failed and the output
	var failed error
	var all sync.WaitGroup
	slots := make(chan struct{}, *together)
	for size := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(size)
		if err != nil {
			return err
		}
		for _, p := range peers {
			if !wanted.MatchString(p.name) {
				continue
			}
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				v, err := use(ctx, tools, p, n)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && p.exact && v.over > 0 {
					err = fmt.Errorf("%d of %d seconds are over the limit", v.over, v.seconds)
				}
				if err == nil && p.shape == "sliding" && v.mostAny > 100 {
					err = fmt.Errorf("a second has %.1f%% of the limit", v.mostAny)
				}
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("%s, %d processes: %w", p.name, n, err))
				}
				fmt.Printf("BenchmarkOvershoot/peer=%s/n=%d 1 %s\n", strings.ReplaceAll(p.name, " ", "_"), n, v)
			})
		}
	}
	all.Wait()
	return failed
}

// tools are what servers and callers need that is built first.
type tools struct{ folder, classpath, gubernator string }

// use has n processes use a limiter, and judges their calls.
func use(ctx context.Context, t *tools, p *contender, n int) (verdict, error) {
	folder, err := os.MkdirTemp(t.folder, "run")
	if err != nil {
		return verdict{}, err
	}
	s, err := p.kind.serve(ctx, t, p, folder)
	if err != nil {
		return verdict{}, err
	}
	defer s.close()
	r := &run{peer: p, n: n, tools: t, server: s}
	defer func() { _, _ = r.end() }()
	for range n - 1 {
		if err := r.join(); err != nil {
			return verdict{}, err
		}
	}
	if err := r.ready(ctx); err != nil {
		return verdict{}, err
	}
	// Everything happens in the middle of a second, so that whole seconds are before and after.
	began := time.Now().Truncate(time.Second).Add(1500 * time.Millisecond)
	pass := func(part float64) time.Time {
		at := began.Add(time.Duration(part * float64(*length)).Round(time.Second))
		r.loadUntil(ctx, at)
		return at
	}
	r.load()
	r.loadUntil(ctx, began)
	pass(4. / 24)
	if err := r.join(); err != nil {
		return verdict{}, err
	}
	killed := pass(8. / 24)
	r.kill(1)
	lowered := pass(18. / 24)
	if err := r.lower(ctx); err != nil {
		return verdict{}, err
	}
	end := pass(1)
	if err := ctx.Err(); err != nil {
		return verdict{}, err
	}
	calls, err := r.end()
	return judge(calls, plan{
		limit: *limit, begin: began, killed: killed, lowered: lowered, end: end,
		lowers: !p.keepsLimit,
	}), err
}
