// Package http runs the middleware and the Transport of consumer/httplimit in a
// real server, against curl and wrk as their distributions ship them. Its tests
// have the build tag e2e:
//
//	go test -tags e2e ./test/http
package http
