package ntp

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

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

// ParseServers splits a list with commas, as in a flag, and checks it. An empty
// text is no server.
func ParseServers(text string) ([]string, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if len(text) > MaxServers*maxAddress {
		return nil, fmt.Errorf("%d bytes of NTP servers are too many", len(text))
	}
	var all []string
	for a := range strings.SplitSeq(text, ",") {
		all = append(all, strings.TrimSpace(a))
	}
	return all, CheckServers(all)
}

// maxAddress is the longest host name, with a port.
const maxAddress = 253 + len(":65535")

func checkServer(address string) error {
	if len(address) > maxAddress {
		return errors.New("too long")
	}
	host := address
	if strings.Count(address, ":") == 1 || strings.HasPrefix(address, "[") {
		h, port, err := net.SplitHostPort(address)
		if err != nil {
			return errors.New("no address")
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("port %q is not from 1 to 65535", shorten(port))
		}
		host = h
	}
	if host == "" {
		return errors.New("no host")
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == '/' || r == '[' || r == ']' || r > '~' }) {
		return errors.New("no host name")
	}
	if strings.Contains(host, ":") {
		if ip, _, _ := strings.Cut(host, "%"); net.ParseIP(ip) == nil {
			return errors.New("no IPv6 address")
		}
	}
	return nil
}

func shorten(s string) string { return strings.ToValidUTF8(s[:min(len(s), 64)], "?") }
