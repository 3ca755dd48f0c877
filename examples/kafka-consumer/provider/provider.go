package provider

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"html/template"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// NDJSON is the content type of a call with several records, one a line. It is
// answered with an Outcome.
const NDJSON = "application/x-ndjson"

// Outcome answers a call with several records.
type Outcome struct {
	Rejected []int `json:"rejected"` // indexes of the lines that were refused for their own sake
}

// Poison starts a record that is rejected.
const Poison = "poison"

// maxCall bounds a call.
const maxCall = 4 << 20

// Config of a Provider.
type Config struct {
	// Limit is how many records a Window may bring. The provider does not
	// enforce it; it judges.
	Limit  int64
	Window time.Duration
	// Latency is how long a call takes.
	Latency time.Duration
	// Forward, if not nil, is a real provider: calls are counted here and answered
	// by it.
	Forward *url.URL
}

// Provider is an http.Handler: POST makes a call; GET / is a page of counts, and
// GET /counts the same as JSON.
type Provider struct {
	config Config
	mux    *http.ServeMux
	seed   maphash.Seed

	mu     sync.Mutex
	counts counts
	busy   time.Time // until when calls are answered 429
}

// New returns a provider that has counted nothing.
func New(c Config) *Provider {
	p := &Provider{config: c, mux: http.NewServeMux(), counts: newCounts(c.Limit, c.Window), seed: maphash.MakeSeed()}
	p.mux.HandleFunc("POST /", p.call)
	p.mux.HandleFunc("GET /{$}", p.page)
	p.mux.HandleFunc("GET /counts", p.json)
	return p
}

// ServeHTTP implements http.Handler.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.mux.ServeHTTP(w, r) }

// Overload answers 429 for so long, with a Retry-After of what is left of it.
func (p *Provider) Overload(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = time.Now().Add(d)
}

// Totals returns the counts so far.
func (p *Provider) Totals() Totals {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts.summary()
}

// Recent returns the last n windows, newest first.
func (p *Provider) Recent(n int) []Window {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts.recent(n)
}

func (p *Provider) call(w http.ResponseWriter, r *http.Request) {
	at := time.Now() // first of all: this is the clock that judges
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCall))
	if err != nil {
		http.Error(w, "the call is too large, or was cut off", http.StatusBadRequest)
		return
	}
	lines := [][]byte{body}
	batch := r.Header.Get("Content-Type") == NDJSON
	if batch {
		lines = bytes.Split(body, []byte("\n"))
	}
	if wait := p.arrive(at, len(lines)); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		http.Error(w, "too busy", http.StatusTooManyRequests)
		return
	}
	if p.config.Forward != nil {
		p.forward(w, r, body)
		return
	}
	time.Sleep(p.config.Latency)
	rejected := p.process(lines)
	switch {
	case batch:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Outcome{rejected})
	case len(rejected) > 0:
		http.Error(w, "this cannot be processed", http.StatusUnprocessableEntity)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// arrive counts a call, and returns how long it is to stay away.
func (p *Provider) arrive(at time.Time, records int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.arrive(at, int64(records))
	wait := p.busy.Sub(at)
	if wait > 0 {
		p.counts.totals.Refused += int64(records)
	}
	return wait
}

func (p *Provider) process(lines [][]byte) (rejected []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, line := range lines {
		if bytes.HasPrefix(line, []byte(Poison)) {
			rejected = append(rejected, i)
			p.counts.totals.Rejected++
			continue
		}
		p.counts.process(p.key(line))
	}
	return rejected
}

// key tells records apart. Numbers, which the demonstration sends, are their own
// key; the rest are hashed.
func (p *Provider) key(record []byte) uint64 {
	if n, err := strconv.ParseUint(string(record), 10, 63); err == nil {
		return n
	}
	return maphash.Bytes(p.seed, record) | 1<<63
}

// forward lets the real provider answer, and counts what it processed.
func (p *Provider) forward(w http.ResponseWriter, r *http.Request, body []byte) {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, p.config.Forward.String(), bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	for _, name := range []string{"Content-Type", "Idempotency-Key"} {
		request.Header[name] = r.Header[name]
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode/100 == 2:
		p.process([][]byte{body})
	case answer.Header.Get("Retry-After") != "":
		w.Header().Set("Retry-After", answer.Header.Get("Retry-After"))
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, io.LimitReader(answer.Body, maxCall))
}

func (p *Provider) json(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(struct {
		Totals  Totals   `json:"totals"`
		Windows []Window `json:"windows"`
	}{p.Totals(), p.Recent(60)})
}

var page = template.Must(template.New("page").Parse(`<!doctype html>
<meta charset="utf-8"><meta http-equiv="refresh" content="1"><title>provider</title>
<style>body{font:14px sans-serif;margin:2em}td,th{text-align:right;padding:.1em 1em}.over{color:#b00}</style>
<h1>Provider</h1>
<p>{{.Totals.Processed}} records processed in {{.Totals.Calls}} calls; {{.Totals.Repeated}} repeated, {{.Totals.Rejected}} rejected, {{.Totals.Refused}} refused (429).
Limit {{.Totals.Limit}} a window; worst window {{.Totals.Worst.Records}}; {{.Totals.Over}} over.</p>
<table><tr><th>window<th>records<th>calls<th></tr>
{{range .Windows}}<tr{{if gt .Records $.Totals.Limit}} class="over"{{end}}><td>{{.Start.Format "15:04:05.0"}}<td>{{.Records}}<td>{{.Calls}}<td><meter max="{{$.Totals.Limit}}" value="{{.Records}}"></meter></tr>
{{end}}</table>
`))

func (p *Provider) page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_ = page.Execute(w, struct {
		Totals  Totals
		Windows []Window
	}{p.Totals(), p.Recent(60)})
}
