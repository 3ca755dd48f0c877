package webguard

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// MinToken is the shortest token, in bytes: long enough that nobody guesses
	// it, so that no count of attempts is needed, which strangers could use up.
	MinToken = 24
	// maxTokens bounds the holders.
	maxTokens = 1000
	// SessionTime is how long a login lasts.
	SessionTime = 12 * time.Hour
	// maxSessions bounds what logins cost; the one that ends first makes room.
	maxSessions = 1000
)

type digest [sha256.Size]byte

// Tokens are the secrets that people log in with, each of somebody, and who is
// logged in. It keeps no secret, only what is derived from it. Safe for
// concurrent use.
type Tokens struct {
	holders []holder

	mu       sync.Mutex
	sessions map[digest]session // by the cookie
}

type holder struct {
	name  string
	token digest
}

type session struct {
	who  string
	ends time.Time
}

// ParseTokens reads a line for each holder, "NAME TOKEN"; empty lines and those
// that begin with # are passed over. A line without a name is that of owner. An
// error never contains a token.
func ParseTokens(text, owner string) (*Tokens, error) {
	t := &Tokens{sessions: map[digest]session{}}
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
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
		case len(t.holders) == maxTokens:
			return nil, fmt.Errorf("more than %d tokens", maxTokens)
		}
		t.holders = append(t.holders, holder{name, sha256.Sum256([]byte(token))})
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(t.holders) == 0 {
		return nil, errors.New("there is no token; write a line NAME TOKEN for each person")
	}
	return t, nil
}

// holderOf returns who has the token, or "". It takes as long for a token that
// is nearly right as for any other.
func (t *Tokens) holderOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	found := ""
	for _, h := range t.holders {
		if subtle.ConstantTimeCompare(sum[:], h.token[:]) == 1 {
			found = h.name
		}
	}
	return found
}

// cookieName is the session's; with __Host- the browser keeps it to this very
// host, and to https.
func cookieName(secure bool) string {
	if secure {
		return "__Host-quotient"
	}
	return "quotient"
}

func (t *Tokens) session(r *http.Request, secure bool) string {
	c, err := r.Cookie(cookieName(secure))
	if err != nil {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.sessions[sha256.Sum256([]byte(c.Value))]
	if !ok || time.Now().After(s.ends) {
		return ""
	}
	return s.who
}

// open begins a session and returns its cookie's value.
func (t *Tokens) open(who string, now time.Time) string {
	value := rand.Text()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.sessions) >= maxSessions {
		var first digest
		for id, s := range t.sessions {
			if f, ok := t.sessions[first]; !ok || s.ends.Before(f.ends) {
				first = id
			}
		}
		delete(t.sessions, first)
	}
	t.sessions[sha256.Sum256([]byte(value))] = session{who, now.Add(SessionTime)}
	return value
}

// Login takes {"token": "..."} and answers with a cookie. For a POST that passed
// the guard, on a public path.
func (g *Guard) Login(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Token string `json:"token"`
	}
	if g.o.Tokens == nil {
		g.refuse(w, r, &refusal{http.StatusNotFound, "there is nothing to log in to"})
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		g.refuse(w, r, &refusal{http.StatusBadRequest, "the body must be {\"token\": \"...\"}"})
		return
	}
	who := g.o.Tokens.holderOf(strings.TrimSpace(body.Token))
	if who == "" {
		g.refuse(w, r, &refusal{http.StatusUnauthorized, "nobody has this token"})
		return
	}
	g.o.Log.InfoContext(r.Context(), "logged in", "who", who, "remote", r.RemoteAddr)
	http.SetCookie(w, g.cookie(g.o.Tokens.open(who, time.Now()), int(SessionTime.Seconds())))
	WriteJSON(w, http.StatusOK, map[string]string{"who": who})
}

// Logout ends the session.
func (g *Guard) Logout(w http.ResponseWriter, r *http.Request) {
	if g.o.Tokens != nil {
		if c, err := r.Cookie(cookieName(g.o.Secure)); err == nil {
			g.o.Tokens.mu.Lock()
			delete(g.o.Tokens.sessions, sha256.Sum256([]byte(c.Value)))
			g.o.Tokens.mu.Unlock()
		}
		http.SetCookie(w, g.cookie("", -1))
	}
	WriteJSON(w, http.StatusOK, map[string]string{})
}

func (g *Guard) cookie(value string, age int) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // without TLS, on loopback, a Secure cookie would not come back
		Name: cookieName(g.o.Secure), Value: value, Path: "/", MaxAge: age,
		HttpOnly: true, Secure: g.o.Secure, SameSite: http.SameSiteStrictMode,
	}
}
