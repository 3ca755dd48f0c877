// Package httplimit puts limiters into HTTP: a Transport for clients, whose
// requests take permits of a provider's limit, and middleware for servers.
//
//	client := &http.Client{Transport: &httplimit.Transport{Limiter: limiter, MaxWait: time.Second}}
//
// A request that gets no permit does not leave: the client's caller sees an
// error, errors.Is(err, consumer.ErrLimited), and no invented response. What a
// provider answers with 429 or 503 and Retry-After pauses the limiter.
//
// On the server's side Handler limits a route by a limiter, whose share this
// server has of what the fleet may serve, and PerKey limits each client by
// itself, in this process's memory. Both answer 429 with Retry-After and the
// fields RateLimit and RateLimit-Policy
// (draft-ietf-httpapi-ratelimit-headers-11); they may be put around each other.
package httplimit
