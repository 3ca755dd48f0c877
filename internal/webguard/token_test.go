package webguard

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// quietLog is a log that goes nowhere.
func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func withTokens(t *testing.T, log *slog.Logger) (http.Handler, *Tokens) {
	t.Helper()
	tokens, err := ParseTokens("# people\n\nann "+annsToken+"\n  bob\t"+bobsToken+"\n", "owner")
	if err != nil {
		t.Fatal(err)
	}
	return guarded(t, func(o *Options) { o.Tokens, o.Secure, o.Log = tokens, true, log }), tokens
}

func login(h http.Handler, token string) *httptest.ResponseRecorder {
	return answer(h, request(http.MethodPost, "/login", func(r *http.Request) {
		body := fmt.Sprintf(`{"token":%q}`, token)
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}))
}

func TestLogin(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h, _ := withTokens(t, slog.New(slog.NewTextHandler(&log, nil)))
	if w := answer(h, request(http.MethodGet, "/api/x", nil)); w.Code != 401 {
		t.Errorf("without a login: %d", w.Code)
	}
	if w := answer(h, request(http.MethodGet, "/", nil)); w.Code != 200 {
		t.Errorf("the page to log in on: %d", w.Code)
	}
	for _, wrong := range []string{"", "x", annsToken[1:], annsToken + "x", strings.ToUpper(annsToken), "ann " + annsToken} {
		if w := login(h, wrong); w.Code != 401 || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("token %q: %d, %s", wrong, w.Code, w.Header())
		}
	}
	w := login(h, bobsToken)
	cookies := w.Result().Cookies()
	if w.Code != 200 || len(cookies) != 1 {
		t.Fatalf("%d, cookies %v", w.Code, cookies)
	}
	c := cookies[0]
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || !strings.HasPrefix(c.Name, "__Host-") {
		t.Errorf("the cookie is %s", c)
	}
	with := func(r *http.Request) { r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value}) }
	if w := answer(h, request(http.MethodGet, "/api/x", with)); w.Body.String() != "hello bob" {
		t.Errorf("logged in as %q", w.Body)
	}
	forged := func(r *http.Request) { r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value + "x"}) }
	if w := answer(h, request(http.MethodGet, "/api/x", forged)); w.Code != 401 {
		t.Errorf("a forged cookie: %d", w.Code)
	}
	answer(h, request(http.MethodPost, "/logout", with))
	if w := answer(h, request(http.MethodGet, "/api/x", with)); w.Code != 401 {
		t.Errorf("after logging out: %d", w.Code)
	}
	for _, secret := range []string{annsToken, bobsToken, c.Value} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log holds a secret:\n%s", log.String())
		}
	}
	if !strings.Contains(log.String(), "who=bob") || !strings.Contains(log.String(), "nobody has this token") {
		t.Errorf("the log does not tell who logged in and who was refused:\n%s", log.String())
	}
}

func TestSessionsEndAndAreBounded(t *testing.T) {
	t.Parallel()
	h, tokens := withTokens(t, nil)
	old := tokens.open("ann", time.Now().Add(-SessionTime-time.Second))
	with := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookieName(true), Value: value}) }
	}
	if w := answer(h, request(http.MethodGet, "/api/x", with(old))); w.Code != 401 {
		t.Errorf("a session that is over: %d", w.Code)
	}
	for range maxSessions + 10 {
		tokens.open("ann", time.Now())
	}
	newest := tokens.open("ann", time.Now())
	if n := len(tokens.sessions); n != maxSessions {
		t.Errorf("%d sessions", n)
	}
	if w := answer(h, request(http.MethodGet, "/api/x", with(newest))); w.Code != 200 {
		t.Errorf("the newest session: %d", w.Code)
	}
}

func TestTokensThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "# none\n", "ann short", "short", "ann " + annsToken + " more", "a\u202en " + annsToken, strings.Repeat("a", 200) + " " + annsToken,
	} {
		_, err := ParseTokens(text, "owner")
		if err == nil {
			t.Errorf("%q: no error", text)
			continue
		}
		if strings.Contains(err.Error(), annsToken) || strings.Contains(err.Error(), "short") {
			t.Errorf("the error repeats a token: %v", err)
		}
	}
	tokens, err := ParseTokens(annsToken, "owner")
	if err != nil || tokens.holderOf(annsToken) != "owner" {
		t.Errorf("a token alone: %v", err)
	}
}

// FuzzTokens: whatever the file holds, an error repeats none of its words but the
// line's number, and who is let in is named in it.
func FuzzTokens(f *testing.F) {
	f.Add("ann " + annsToken)
	f.Add("#\n\n\x00 \xff")
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := ParseTokens(text, "owner")
		if err != nil {
			return
		}
		for _, h := range tokens.holders {
			if h.name != "owner" && !strings.Contains(text, h.name) || !ValidName(h.name) {
				t.Errorf("holder %q", h.name)
			}
		}
		if tokens.holderOf("") != "" {
			t.Error("the empty token is somebody's")
		}
	})
}
