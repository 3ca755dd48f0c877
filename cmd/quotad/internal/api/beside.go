package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
)

// In an update two quotads serve one path. A client's next connection leads to the new one, and those that it has lead
// to the old one, as long as that runs. So the one that is asked to settle or to end permits may not be the one that
// gave them: it hands the request on.

const (
	// clientField is the field of a request that was handed on: the name of the client that had sent it.
	clientField = "Quotad-Client"
	// besideTime bounds the answer of another quotad: one that stands still holds up no client for longer.
	besideTime = 2 * time.Second
	// maxAnswer bounds what is read of it, in bytes.
	maxAnswer = 64 << 10
)

var errNoGrant = errors.New("this process has no permits of this ID: they were settled or ended, their time is over, or another process got them (each curl is a process of its own), or a quotad that has ended")

// find returns the client's grant whose ID a request has in its path. If there is none here it answers, and returns nil.
func (s *Server) find(w http.ResponseWriter, r *http.Request, client string, body []byte) *grant {
	handedOn := r.Header.Get(clientField)
	if handedOn != "" && listen.Ours(client) {
		client = handedOn
	}
	g := s.clients.grant(client, r.PathValue("id"))
	if g == nil && (handedOn != "" || !s.handOn(w, r, client, body)) {
		fail(w, http.StatusNotFound, errNoGrant)
	}
	return g
}

// handOn has the other quotads of the socket answer a request about an ID. It returns false if none of them knows it.
func (s *Server) handOn(w http.ResponseWriter, r *http.Request, client string, body []byte) bool {
	if s.beside == nil {
		return false
	}
	others, _ := s.beside() // if the directory is gone, nobody reaches them
	for _, socket := range others {
		if ask(w, r, socket, client, body) {
			return true
		}
	}
	return false
}

// ask has the quotad at a socket answer a request of a client. It returns false if that does not answer, or does not know
// what the request is about.
func ask(w http.ResponseWriter, r *http.Request, socket, client string, body []byte) bool {
	// A cost counts also if its client has gone.
	ctx := context.WithoutCancel(r.Context())
	request, err := http.NewRequestWithContext(ctx, r.Method, "http://quotad"+r.URL.EscapedPath(), bytes.NewReader(body)) //nolint:gosec // at a socket
	if err != nil {
		return false
	}
	request.Header.Set("Content-Type", jsonType[0])
	request.Header.Set(clientField, client)
	answer, err := listen.Client(socket, besideTime).Do(request) //nolint:gosec // at a socket
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil || answer.StatusCode == http.StatusNotFound {
		return false
	}
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if value := answer.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(text)
	return true
}
