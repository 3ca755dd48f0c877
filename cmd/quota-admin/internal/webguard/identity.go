package webguard

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
)

const maxIdentity = 128

// Upstream is a proxy that has found out who is there, and says so in a header.
type Upstream struct {
	// Header is its name; nothing else that a proxy may add is believed.
	Header string
	// Proxies are the addresses that it may come from. Other connections are
	// refused, also for public paths.
	Proxies []netip.Prefix
}

// ValidName reports whether a name can stand in a history: printable, without
// blanks at its ends, and not too long.
func ValidName(name string) bool {
	return name != "" && len(name) <= maxIdentity && strings.TrimSpace(name) == name && format.Printable(name)
}

// sent reports whether a request comes from one of the proxies.
func (u *Upstream) sent(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && slices.ContainsFunc(u.Proxies, func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap()) })
}

// identify returns who sent a request, or why that is not known.
func (g *Guard) identify(r *http.Request) (who, no string) {
	switch {
	case g.o.Upstream != nil:
		names := r.Header.Values(g.o.Upstream.Header)
		if len(names) == 1 && ValidName(names[0]) {
			return names[0], ""
		}
		return "", "the proxy must say who is there, once, in " + g.o.Upstream.Header
	case g.o.Tokens != nil:
		token, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !given {
			return "", "log in with your token"
		}
		if who = g.o.Tokens.holderOf(token); who == "" {
			return "", "nobody has this token"
		}
		return who, ""
	}
	return g.o.Anybody, ""
}

const (
	// MinToken is the shortest token, in bytes: long enough that nobody guesses
	// it, so that no count of attempts is needed, which strangers could use up.
	MinToken = 24
	// maxTokens bounds the holders.
	maxTokens = 1000
)

// Tokens are the holders of the secrets that people log in with. It keeps no
// secret, only digests, by which tokens are looked up: how long that takes tells
// nothing of the token.
type Tokens map[[sha256.Size]byte]string

// ParseTokens reads a line for each holder, "NAME TOKEN"; empty lines and those
// that begin with # are passed over. A line without a name is that of owner. An
// error never contains a token.
func ParseTokens(text, owner string) (Tokens, error) {
	t := Tokens{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		name, token := owner, fields[0]
		if len(fields) == 2 {
			name, token = fields[0], fields[1]
		}
		switch {
		case len(fields) > 2:
			return nil, fmt.Errorf("line %d has %d words: write NAME TOKEN", n, len(fields))
		case !ValidName(name):
			return nil, fmt.Errorf("line %d: the name must be printable and have at most %d bytes", n, maxIdentity)
		case len(token) < MinToken:
			return nil, fmt.Errorf("line %d: a token of %d bytes can be guessed; use at least %d, as from: openssl rand -hex 24", n, len(token), MinToken)
		case len(t) == maxTokens:
			return nil, fmt.Errorf("more than %d tokens", maxTokens)
		}
		t[sha256.Sum256([]byte(token))] = name
	}
	if len(t) == 0 {
		return nil, errors.New("there is no token; write a line NAME TOKEN for each person")
	}
	return t, nil
}

func (t Tokens) holderOf(token string) string { return t[sha256.Sum256([]byte(token))] }
