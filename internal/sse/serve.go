package sse

import (
	"net/http"
	"time"
)

// Lifetime is how long one connection lasts before the browser has to come
// back: it is then asked again who it is.
const Lifetime = 10 * time.Minute

// writeTime is how long a reader may keep a write waiting.
const writeTime = 10 * time.Second

// Serve sends the topic's events until the reader goes, does not read, or ends
// closes. The caller has checked who it is.
func (t *Topic) Serve(w http.ResponseWriter, r *http.Request, ends <-chan struct{}) {
	control := http.NewResponseController(w)
	// The bound on reading the request is past; the stream has none.
	if control.SetReadDeadline(time.Time{}) != nil {
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // proxies that collect answers
	w.WriteHeader(http.StatusOK)
	life := time.NewTimer(Lifetime)
	defer life.Stop()
	at := t.resume(r.Header.Get("Last-Event-ID"))
	frames := [][]byte{[]byte("retry: 1000\n\n")}
	for {
		found, after, more := t.read(at)
		at = after
		if control.SetWriteDeadline(time.Now().Add(writeTime)) != nil {
			return
		}
		for _, f := range append(frames, found...) {
			if _, err := w.Write(f); err != nil {
				return
			}
		}
		if control.Flush() != nil {
			return
		}
		frames = nil
		select {
		case <-more:
		case <-r.Context().Done():
			return
		case <-ends:
			return
		case <-life.C:
			return
		}
	}
}
