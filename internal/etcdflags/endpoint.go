package etcdflags

import (
	"net/url"
	"strconv"
	"strings"
)

func demandsTLS(e string) bool {
	return strings.HasPrefix(e, "https://") || strings.HasPrefix(e, "unixs://")
}

func forbidsTLS(e string) bool {
	return strings.HasPrefix(e, "http://") || strings.HasPrefix(e, "unix://")
}

// problemOf says what is wrong with an endpoint; "" if it is valid.
func problemOf(endpoint string) string {
	if !strings.Contains(endpoint, "://") {
		endpoint = "//" + endpoint
	}
	u, err := url.Parse(endpoint)
	switch {
	case err == nil && (u.Scheme == "unix" || u.Scheme == "unixs"):
		if u.Host+u.Path == "" {
			return "lacks the path of a socket"
		}
		return ""
	case err == nil && u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https":
		return "has scheme " + strconv.Quote(u.Scheme) + "; known are http, https, unix and unixs"
	case err != nil || u.Host == "":
		return "is not an address; write it like " + DefaultEndpoint
	case u.User != nil:
		return "holds a user; use --user"
	case u.Path != "" || u.RawQuery != "" || u.Fragment != "":
		return "holds more than host and port; write it like " + DefaultEndpoint
	case u.Hostname() == "" || u.Port() == "":
		return "lacks a host or a port; write it like " + DefaultEndpoint
	}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
		return "has port " + u.Port() + ", which is not within 1 to 65535"
	}
	return ""
}

// checkEndpoints checks every endpoint, and refuses what the client would quietly do in
// the clear although certificates are given.
func (f *Flags) checkEndpoints() error {
	if len(f.Endpoints) == 0 {
		return f.bad("endpoints", "is empty; the default is %s", DefaultEndpoint)
	}
	var tls, plain string
	for i, text := range f.Endpoints {
		if text = strings.TrimSpace(text); strings.HasPrefix(text, "http") {
			text = strings.TrimSuffix(text, "/")
		}
		f.Endpoints[i] = text
		if problem := problemOf(text); problem != "" {
			// A user part may hold a password.
			if at := strings.LastIndex(text, "@"); at >= 0 {
				text = "...@" + text[at+1:]
			}
			return f.bad("endpoints", "%q %s", text, problem)
		}
		if demandsTLS(text) {
			tls = text
		}
		if forbidsTLS(text) {
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
