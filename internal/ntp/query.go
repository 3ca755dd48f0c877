package ntp

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/beevik/ntp"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// timeout is how long an answer may take: one that took longer would bound the
// error too loosely to be of use.
const timeout = 3 * time.Second

// query asks a server once. All four timestamps of the exchange are told by the
// monotonic clock, moved to about the present: what the operating system does to
// its wall clock meanwhile does not matter.
func query(ctx context.Context, c *clock.Clock, address string) answer {
	base := c.Offset()
	r, err := ntp.QueryWithOptions(address, ntp.QueryOptions{
		Timeout:       timeout,
		GetSystemTime: func() time.Time { return time.Unix(0, base+c.Mono()) },
		Dialer: func(_, remote string) (net.Conn, error) {
			conn, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, "udp", remote)
			if err == nil {
				context.AfterFunc(ctx, func() { _ = conn.Close() })
			}
			return conn, err
		},
	})
	if err != nil {
		return answer{problem: plain(err)}
	}
	return read(r, c.Mono(), base)
}

// read makes an answer of a response that came at the instant mono, to a
// question asked by a clock of the offset base.
func read(r *ntp.Response, mono, base int64) answer {
	if r.IsKissOfDeath() {
		return answer{kiss: r.KissCode, poll: r.Poll}
	}
	if err := r.Validate(); err != nil {
		return answer{problem: err.Error()}
	}
	// The server's own clock may be coarse.
	distance := r.RootDistance + max(0, r.Precision)
	if distance < 0 || distance > maxDistance || r.ClockOffset > maxOffset || r.ClockOffset < -maxOffset {
		return answer{problem: "its time is out of all bounds"}
	}
	return answer{sample: sample{mono: mono, offset: base + int64(r.ClockOffset), distance: distance}}
}

const (
	// maxDistance is the largest distance of use (MAXDISP in RFC 5905).
	maxDistance = 16 * time.Second
	// maxOffset is more than a clock can be off: a battery that failed tells 1970.
	maxOffset = 100 * 365 * 24 * time.Hour
)

// plain says in words what went wrong, without the addresses of the sockets,
// which differ from question to question.
func plain(err error) string {
	var dns *net.DNSError
	var timed interface{ Timeout() bool }
	var op *net.OpError
	switch {
	case errors.As(err, &dns):
		return "its name is not known"
	case errors.As(err, &timed) && timed.Timeout():
		return "no answer in " + timeout.String()
	case errors.As(err, &op):
		return op.Err.Error()
	}
	return err.Error()
}
