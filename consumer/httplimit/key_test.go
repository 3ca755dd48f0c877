package httplimit_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/quota"
)

func account(r *http.Request) string { return r.Header.Get("Account") }

// openKeyed returns a limiter of 5/2s whose keys have 2/s.
func openKeyed(t *testing.T) *consumer.Limiter {
	return openShaped(t, "5/2s", quota.Policy{Keys: quota.Keys{Limits: limits(t, "2/s"), Most: 3}})
}

// askFor lets a handler answer a request of an account.
func askFor(t *testing.T, h http.Handler, account string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header.Set("Account", account)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// The fields and the body of a refusal tell the limit of all requests from the one of the
// request's account. A request without an account takes only of the former.
func TestHandlerKnowsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, err := httplimit.Handler(openKeyed(t), httplimit.Options{Key: account})
		if err != nil {
			t.Fatal(err)
		}
		h := limit(ok)
		const policy = ` policy "default-2s";q=5;w=2, "default-key-1s";q=2;w=1 limit `
		for _, step := range []struct{ account, want string }{
			{"a", `200 retry ` + policy + `"default-2s";r=4;t=2, "default-key-1s";r=1;t=1`},
			{"a", `200 retry ` + policy + `"default-2s";r=3;t=2, "default-key-1s";r=0;t=1`},
			{"a", `429 retry 1` + policy + `"default-2s";r=3;t=2, "default-key-1s";r=0;t=1`},
			{"b", `200 retry ` + policy + `"default-2s";r=2;t=2, "default-key-1s";r=1;t=1`},
			{"", `200 retry  policy "default-2s";q=5;w=2 limit "default-2s";r=1;t=2`},
			{"", `200 retry  policy "default-2s";q=5;w=2 limit "default-2s";r=0;t=2`},
			{"b", `429 retry 2` + policy + `"default-2s";r=0;t=2, "default-key-1s";r=1;t=1`},
		} {
			w := askFor(t, h, step.account)
			if got := says(w); got != step.want {
				t.Errorf("account %q:\ngot  %s\nwant %s", step.account, got, step.want)
			}
			if w.Code != http.StatusTooManyRequests {
				continue
			}
			var problem struct {
				Violated []string `json:"violated-policies"`
			}
			want := []string{map[string]string{"a": "default-key-1s", "b": "default-2s"}[step.account]}
			if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || !cmp.Equal(problem.Violated, want) {
				t.Errorf("account %s: %s, want %v violated", step.account, w.Body, want)
			}
		}
	})
}

// A name that no key can have is the client's mistake. One key too many is not.
func TestHandlerRefusesKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reason error
		limiter := openKeyed(t)
		options := httplimit.Options{Key: account, Refuse: func(w http.ResponseWriter, _ *http.Request, status int, err error) {
			reason = err
			w.WriteHeader(status)
		}}
		custom, err := httplimit.Handler(limiter, options)
		if err != nil {
			t.Fatal(err)
		}
		options.Refuse = nil
		plain, _ := httplimit.Handler(limiter, options)
		long := strings.Repeat("x", 257)
		if w := askFor(t, custom(ok), long); w.Code != http.StatusBadRequest || !errors.Is(reason, consumer.ErrInvalid) {
			t.Errorf("%d, %v", w.Code, reason)
		}
		w := askFor(t, plain(ok), long)
		if body := w.Body.String(); w.Code != http.StatusBadRequest || !strings.Contains(body, "has 257 bytes, more than the most, 256") || w.Header().Get("Retry-After") != "" {
			t.Errorf("%d %v %s", w.Code, w.Header(), body)
		}
		for _, name := range []string{"a", "b", "c"} {
			askFor(t, plain(ok), name)
		}
		if w := askFor(t, plain(ok), "d"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("one key too many: %d %v %s", w.Code, w.Header(), w.Body)
		}
		if n := limiter.Status().Issued; n != 3 {
			t.Errorf("%d permits issued, want 3", n)
		}
	})
}

// A client's requests take permits of their account's limit, and of none without an account.
func TestTransportKnowsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, limiter := &provider{}, openKeyed(t)
		send := func(of string, margin time.Duration) error {
			client := &http.Client{Transport: &httplimit.Transport{
				Base: p, Limiter: limiter, Margin: margin, Key: func(*http.Request) string { return of },
			}}
			return get(t, client, "http://a/")
		}
		for range 2 {
			if err := send("a", 0); err != nil {
				t.Error(err)
			}
		}
		for _, step := range []struct {
			account string
			key     string
			kind    error
		}{{"a", "a", consumer.ErrLimited}, {"b", "", nil}, {"", "", nil}, {"\x00", "", consumer.ErrInvalid}} {
			err := send(step.account, 0)
			limited, _ := errors.AsType[consumer.LimitError](err)
			if !errors.Is(err, step.kind) || limited.Key != step.key {
				t.Errorf("account %q: %v", step.account, err)
			}
		}
		// The rest of the key's second is too short for the way, though the provider's is not.
		time.Sleep(900 * time.Millisecond)
		err := send("c", 200*time.Millisecond)
		limited, _ := errors.AsType[consumer.LimitError](err)
		if limited.Key != "c" || limited.Provider != "p" || p.calls != 4 {
			t.Errorf("%v, %d calls", err, p.calls)
		}
	})
}
