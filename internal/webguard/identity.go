package webguard

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxIdentity is the longest name of somebody, in bytes.
const maxIdentity = 128

// Upstream is a proxy that has found out who is there, and says so in a header.
type Upstream struct {
	// Header is its name; nothing else that a proxy may add is believed.
	Header string
	// Proxies are the addresses that it may come from. Who else connects is
	// refused, also for public paths.
	Proxies []netip.Prefix
}

// ValidName reports whether a name can stand in a history: printable, without
// blanks at its ends, and not too long.
func ValidName(name string) bool {
	if name == "" || len(name) > maxIdentity || !utf8.ValidString(name) || strings.TrimSpace(name) != name {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// checkProxy refuses who is not the upstream, where there is one.
func (g *Guard) checkProxy(r *http.Request) *refusal {
	if g.o.Upstream == nil {
		return nil
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err == nil {
		for _, p := range g.o.Upstream.Proxies {
			if p.Contains(from.Addr().Unmap()) {
				return nil
			}
		}
	}
	return &refusal{http.StatusForbidden, "connect through the proxy that knows who you are"}
}

// identify finds who is there.
func (g *Guard) identify(r *http.Request) (string, *refusal) {
	switch {
	case g.o.Upstream != nil:
		names := r.Header.Values(g.o.Upstream.Header)
		if len(names) == 1 && ValidName(names[0]) {
			return names[0], nil
		}
		return "", &refusal{http.StatusUnauthorized, fmt.Sprintf("the proxy must say who is there, once, in %s", g.o.Upstream.Header)}
	case g.o.Tokens != nil:
		if who := g.o.Tokens.session(r, g.o.Secure); who != "" {
			return who, nil
		}
		return "", &refusal{http.StatusUnauthorized, "log in with your token"}
	}
	return g.o.Anybody, nil
}
