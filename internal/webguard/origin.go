package webguard

import (
	"net"
	"net/http"
	"strings"
)

// checkHost refuses host names that the page is not known by. A page of
// somebody else whose name was made to point here (DNS rebinding) is of the same
// origin for the browser, but it cannot change the name that it asks for.
func (g *Guard) checkHost(r *http.Request) *refusal {
	name := strings.ToLower(r.Host)
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	if inner, ok := strings.CutPrefix(name, "["); ok && strings.HasSuffix(inner, "]") {
		name = strings.TrimSuffix(inner, "]")
	}
	if !g.hosts[name] {
		return &refusal{http.StatusMisdirectedRequest, "this page is not known by that host name; --host adds one"}
	}
	return nil
}

// checkSite refuses what another site made the browser send. A browser says so
// by Sec-Fetch-Site, older ones by Origin. A write must say where it comes from.
// Another site may link to the page, and that is all.
func (g *Guard) checkSite(r *http.Request) *refusal {
	no := &refusal{http.StatusForbidden, "another site sent this request"}
	if err := g.origin.Check(r); err != nil {
		return no
	}
	if r.Method == http.MethodPost {
		switch origin := r.Header.Get("Origin"); {
		case origin == "":
			return &refusal{http.StatusForbidden, "a change must say which page it comes from (Origin)"}
		case !sameOrigin(origin, r), len(r.Header.Values("Origin")) > 1:
			return no
		}
	}
	if origin := r.Header.Get("Origin"); origin != "" && !sameOrigin(origin, r) {
		return no
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return nil
	}
	if r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return nil
	}
	return no
}

// sameOrigin compares without Sec-Fetch-Site. Behind a proxy that ends TLS the
// scheme cannot be compared.
func sameOrigin(origin string, r *http.Request) bool {
	host, secure := strings.CutPrefix(origin, "https://")
	if !secure {
		var plain bool
		if host, plain = strings.CutPrefix(origin, "http://"); !plain || r.TLS != nil {
			return false
		}
	}
	return strings.EqualFold(host, r.Host)
}

// policy is the content security policy: the page's own files and nothing else,
// no inline script or style, in no frame, and no text is ever taken for HTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

func (g *Guard) headers(h http.Header, r *http.Request) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
	h.Set("Cache-Control", "no-store")
	if r.TLS != nil {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}
