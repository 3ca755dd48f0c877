package ntp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
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
		return kissed(r.KissCode, r.Poll)
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

// kissed obeys a kiss of death (RFC 5905, section 7.4): RATE asks for fewer questions,
// for good; everything else refuses service.
func kissed(code string, poll time.Duration) answer {
	if code == "RATE" {
		return answer{problem: "kiss of death RATE: it is asked too often", slower: true, wait: min(poll, maxPoll)}
	}
	return answer{problem: "kiss of death " + code + ": it refuses service", wait: refusedFor}
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

// Bounds of what is configured.
const (
	// MaxServers bounds the servers of one process.
	MaxServers = 16
	// DefaultInterval is the time between two questions to a server.
	DefaultInterval = 32 * time.Second
	// MinInterval is for servers of one's own: public ones mind less than 16 s.
	MinInterval = time.Second
	MaxInterval = maxPoll
)

// CheckServers returns nil if every address is a host, or host:port, at which a
// server may be; none of them twice.
func CheckServers(addresses []string) error {
	if len(addresses) > MaxServers {
		return fmt.Errorf("%d NTP servers are more than %d", len(addresses), MaxServers)
	}
	for i, a := range addresses {
		if err := checkServer(a); err != nil {
			return fmt.Errorf("NTP server %q: %w: write host or host:port, an IPv6 address with a port in brackets", shorten(a), err)
		}
		if slices.Contains(addresses[:i], a) {
			return fmt.Errorf("NTP server %q: named twice, it would have two votes", a)
		}
	}
	return nil
}

// maxAddress is the longest host name, with a port.
const maxAddress = 253 + len(":65535")

func checkServer(address string) error {
	host, port := address, "123"
	if strings.Count(address, ":") == 1 || strings.HasPrefix(address, "[") {
		var err error
		if host, port, err = net.SplitHostPort(address); err != nil {
			return errors.New("no address")
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	_, unknown := netip.ParseAddr(host)
	switch {
	case len(address) > maxAddress:
		return errors.New("too long")
	case err != nil || n == 0:
		return fmt.Errorf("port %q is not from 1 to 65535", shorten(port))
	case host == "":
		return errors.New("no host")
	case strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == '/' || r == '[' || r == ']' || r > '~' }):
		return errors.New("no host name")
	case strings.Contains(host, ":") && unknown != nil:
		return errors.New("no IPv6 address")
	}
	return nil
}

func shorten(s string) string { return strings.ToValidUTF8(s[:min(len(s), 64)], "?") }
