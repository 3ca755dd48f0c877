package etcdflags

import (
	"net"
	"net/url"
	"strconv"
	"strings"
)

// endpoint is an etcd address in its parts.
type endpoint struct {
	scheme string // "http", "https", "unix", "unixs", or "" where none is given
	host   string // host:port, or a path
}

// demandsTLS reports whether the scheme asks for TLS.
func (e endpoint) demandsTLS() bool { return e.scheme == "https" || e.scheme == "unixs" }

// forbidsTLS reports whether the scheme rules TLS out.
func (e endpoint) forbidsTLS() bool { return e.scheme == "http" || e.scheme == "unix" }

// parseEndpoint takes an address apart. The problem is empty if it is valid.
func parseEndpoint(text string) (e endpoint, problem string) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		scheme, rest = "", text
	}
	switch scheme {
	case "", "http", "https":
		u, err := url.Parse("//" + rest)
		if err != nil || u.Host == "" {
			return e, "is not an address; write it like " + DefaultEndpoint
		}
		if u.User != nil {
			return e, "holds a user; use --user"
		}
		if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
			return e, "holds more than host and port; write it like " + DefaultEndpoint
		}
		host, port, err := net.SplitHostPort(u.Host)
		if err != nil || host == "" {
			return e, "lacks a host or a port; write it like " + DefaultEndpoint
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return e, "has port " + port + ", which is not within 1 to 65535"
		}
		return endpoint{scheme, u.Host}, ""
	case "unix", "unixs":
		if rest == "" {
			return e, "lacks the path of a socket"
		}
		return endpoint{scheme, rest}, ""
	}
	return e, "has scheme " + strconv.Quote(scheme) + "; known are http, https, unix and unixs"
}

// checkEndpoints parses every endpoint, and refuses what the client would
// quietly do in the clear although certificates are given.
func (f *Flags) checkEndpoints() error {
	for i := range f.Endpoints {
		f.Endpoints[i] = strings.TrimSpace(f.Endpoints[i])
		if strings.HasPrefix(f.Endpoints[i], "http") {
			f.Endpoints[i] = strings.TrimSuffix(f.Endpoints[i], "/")
		}
	}
	if len(f.Endpoints) == 0 {
		return f.bad("endpoints", "is empty; the default is %s", DefaultEndpoint)
	}
	var tls, plain string
	for _, text := range f.Endpoints {
		e, problem := parseEndpoint(text)
		if problem != "" {
			// A user part may hold a password.
			if at := strings.LastIndex(text, "@"); at >= 0 {
				text = "...@" + text[at+1:]
			}
			return f.bad("endpoints", "%q %s", text, problem)
		}
		if e.demandsTLS() {
			tls = text
		}
		if e.forbidsTLS() {
			plain = text
		}
	}
	if plain != "" && tls != "" {
		return f.bad("endpoints", "%s uses TLS and %s does not; use the same for all", tls, plain)
	}
	if plain != "" && (f.CACert != "" || f.Cert != "") {
		return f.bad("endpoints", "%s is without TLS, but certificates are given; write https:// or host:port only", plain)
	}
	return nil
}
