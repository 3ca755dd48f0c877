package webguard

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// quietLog is a log that goes nowhere.
func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func withTokens(t *testing.T, log *slog.Logger) http.Handler {
	t.Helper()
	tokens, err := ParseTokens("# people\n\nann "+annsToken+"\n  bob\t"+bobsToken+"\n", "owner")
	if err != nil {
		t.Fatal(err)
	}
	return guarded(t, func(o *Guard) { o.Tokens, o.Log = tokens, log })
}

// TestTokens: every request carries the token; a cookie, or a session that another
// page of the host could have taken, is nothing.
func TestTokens(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := withTokens(t, slog.New(slog.NewTextHandler(&log, nil)))
	with := func(value string) func(*http.Request) { return header("Authorization", value) }
	for name, change := range map[string]func(*http.Request){
		"no token": nil, "an empty one": with("Bearer "), "a part": with("Bearer " + annsToken[1:]), "more": with("Bearer " + annsToken + "x"),
		"upper case": with("Bearer " + strings.ToUpper(annsToken)), "a line of the file": with("Bearer ann " + annsToken),
		"another scheme": with("Basic " + annsToken), "no scheme": with(annsToken),
		"a cookie": header("Cookie", "quotient="+annsToken+"; token="+annsToken),
	} {
		if w := answer(h, request(http.MethodGet, "/api/x", change)); w.Code != 401 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
	if w := answer(h, request(http.MethodGet, "/", nil)); w.Code != 200 {
		t.Errorf("the page to log in on: %d", w.Code)
	}
	for token, who := range map[string]string{annsToken: "ann", bobsToken: "bob"} {
		w := answer(h, request(http.MethodPost, "/api/x", with("Bearer "+token)))
		if w.Body.String() != "hello "+who || len(w.Result().Cookies()) != 0 {
			t.Errorf("%s is %q, with %v", who, w.Body, w.Header())
		}
	}
	for _, secret := range []string{annsToken, bobsToken} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log holds a secret:\n%s", log.String())
		}
	}
	if !strings.Contains(log.String(), "nobody has this token") {
		t.Errorf("the log does not tell who was refused:\n%s", log.String())
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
		for _, name := range tokens {
			if name != "owner" && !strings.Contains(text, name) || !ValidName(name) {
				t.Errorf("holder %q", name)
			}
		}
		if tokens.holderOf("") != "" {
			t.Error("the empty token is somebody's")
		}
	})
}
