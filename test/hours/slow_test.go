package hours_test

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// TestSlowAnswersLoseNothing: a proxy delays everything that etcd answers, by up to
// 2 s. Probes prove views recent all the same, so every window is used up. Somebody
// else writes to the store, so that the watch has to tell how far it is.
func TestSlowAnswersLoseNothing(t *testing.T) {
	for _, rule := range []quota.Outage{quota.OutageStop, quota.OutageHold} {
		for _, late := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second} {
			t.Run(fmt.Sprint(rule, " ", late), func(t *testing.T) {
				const total = 100
				inCrew(t, 2, total, quota.Policy{Outage: rule}, func(c *crew) {
					c.offer(func(int) int64 { return 2 * total })
					other := c.network.connect(c.t)
					go func() {
						for c.ctx.Err() == nil {
							_, _ = other.Put(c.ctx, "others", "write too")
							pass(90 * time.Millisecond)
						}
					}()
					pass(3 * time.Second)
					for _, h := range c.hands {
						h.line.delay.Store(int64(late))
					}
					began := time.Now().Unix()
					pass(40 * time.Second)
					c.mu.Lock()
					defer c.mu.Unlock()
					for s := began; s < began+40; s++ {
						if c.issued[s] != total {
							t.Errorf("second %d: %d permits of %d", s-began, c.issued[s], total)
						}
					}
				})
			})
		}
	}
}

// lateConn is a connection whose bytes are read as late as a delay says.
type lateConn struct {
	net.Conn
	read  *io.PipeReader
	ended chan struct{}
}

// lateBytes have come, and may be read at an instant.
type lateBytes struct {
	b  []byte
	at time.Time
}

// late delays what c delivers; the connection keeps its order, and its pace.
func late(c net.Conn, delay *atomic.Int64) net.Conn {
	r, w := io.Pipe()
	l := &lateConn{c, r, make(chan struct{})}
	come := make(chan lateBytes, 10_000)
	go func() {
		defer close(come)
		for {
			b := make([]byte, 32<<10)
			n, err := c.Read(b)
			if n > 0 {
				come <- lateBytes{b[:n], time.Now().Add(time.Duration(delay.Load()))}
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(l.ended)
		for x := range come {
			pass(time.Until(x.at))
			if _, err := w.Write(x.b); err != nil {
				break
			}
		}
		_ = w.CloseWithError(io.EOF)
		for range come { // until the connection is closed
		}
	}()
	return l
}

func (c *lateConn) Read(b []byte) (int, error) { return c.read.Read(b) }

func (c *lateConn) Close() error {
	err := c.Conn.Close()
	_ = c.read.Close()
	<-c.ended
	return err
}
