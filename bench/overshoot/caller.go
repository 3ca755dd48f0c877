package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// limiter is a limiter as its caller sees it. take asks for one call; it may wait. set has a new
// limit, of the whole fleet where there is a server, or of this process; nil: somebody else tells.
type limiter struct {
	take func(ctx context.Context) (bool, error)
	set  func(limit int64)
}

// call is the life of a process that calls. Orders come on the standard input, a line each: "load
// 120.5" (calls a second to ask for) and "limit 500". It tells each call on the standard output, as
// 8 bytes: nanoseconds since 1970, little endian. It tells 0 when it is ready. It ends with its
// input. bench/java has a twin.
func call(ctx context.Context, name string, limit int64, server string) error {
	p := find(name)
	if p == nil {
		return fmt.Errorf("there is no limiter %q", name)
	}
	l, err := p.open(ctx, limit, server)
	if err != nil {
		return err
	}
	var rate atomic.Uint64
	go obey(l, &rate)
	tell(0)
	// Calls that come while all lanes are busy are lost, as they are in a pool of workers.
	asked := make(chan struct{}, 2*p.lanes())
	var failures atomic.Int64
	var all sync.WaitGroup
	for range p.lanes() {
		all.Go(func() {
			for range asked {
				switch ok, err := l.take(ctx); {
				case err != nil:
					if failures.Add(1) == 1 {
						fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
					}
				case ok:
					tell(time.Now().UnixNano())
				}
			}
		})
	}
	owed, last := 0.0, time.Now()
	for ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
		now := time.Now()
		owed += math.Float64frombits(rate.Load()) * min(now.Sub(last), 100*time.Millisecond).Seconds()
		last = now
		for ; owed >= 1; owed-- {
			if p.lanes() == 1 && !p.waits {
				asked <- struct{}{}
				continue
			}
			select {
			case asked <- struct{}{}:
			default:
			}
		}
	}
	return ctx.Err()
}

// obey follows the orders, and ends the process with them.
func obey(l limiter, rate *atomic.Uint64) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		word, number, _ := strings.Cut(lines.Text(), " ")
		value, _ := strconv.ParseFloat(number, 64)
		if word == "load" {
			rate.Store(math.Float64bits(value))
		} else if l.set != nil {
			l.set(int64(value))
		}
	}
	os.Exit(0)
}

// tell tells an instant, at once: a process that is killed has told all its calls.
func tell(at int64) {
	_, _ = os.Stdout.Write(binary.LittleEndian.AppendUint64(nil, uint64(at)))
}
