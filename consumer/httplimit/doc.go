// Package httplimit puts limiters into HTTP: a Transport for clients, whose
// requests take permits of a provider's limit, and middleware for servers.
//
//	client := &http.Client{Transport: &httplimit.Transport{Limiter: limiter, MaxWait: time.Second}}
//
// A request without a permit is not sent. The caller gets an error that is
// consumer.ErrLimited, and no invented response. A provider's answer 429 or 503 with
// Retry-After pauses the limiter.
//
// In a server, Handler limits a route by this server's share of the limit that the
// fleet may serve. It answers 429 with Retry-After and the fields RateLimit and
// RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-11). Handlers can be nested.
package httplimit
