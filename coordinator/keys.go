package coordinator

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// DefaultPrefix is where Quotient's keys lie.
const DefaultPrefix = "/quotient/v1/"

// keys spells every key. Nothing else does.
//
// A provider's name is escaped to one path element, so that no provider's keys
// lie under another's. All that a share depends on lies under one prefix per
// provider, so that one watch sees it in order.
type keys struct{ prefix string }

func newKeys(prefix string) (keys, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if !strings.HasPrefix(prefix, "/") || !strings.HasSuffix(prefix, "/") || len(prefix) > 128 {
		return keys{}, fmt.Errorf("coordinator: prefix %q: must begin and end with \"/\" and have at most 128 bytes, as %q", prefix, DefaultPrefix)
	}
	return keys{prefix}, nil
}

const (
	policyPart    = "policy"
	levelPart     = "level"
	instancesPart = "instances/"
)

func (k keys) providers() string { return k.prefix + "providers/" }

func (k keys) provider(name string) string { return k.providers() + url.PathEscape(name) + "/" }

func (k keys) policy(provider string) string { return k.provider(provider) + policyPart }

func (k keys) level(provider string) string { return k.provider(provider) + levelPart }

func (k keys) instances(provider string) string { return k.provider(provider) + instancesPart }

func (k keys) instance(provider, incarnation string) string {
	return k.instances(provider) + url.PathEscape(incarnation)
}

func (k keys) reports(provider string) string {
	return k.prefix + "reports/" + url.PathEscape(provider) + "/"
}

func (k keys) report(provider, incarnation string) string {
	return k.reports(provider) + url.PathEscape(incarnation)
}

func (k keys) observers(provider string) string {
	return k.prefix + "observers/" + url.PathEscape(provider) + "/"
}

func (k keys) history(provider string) string {
	return k.prefix + "history/" + url.PathEscape(provider) + "/"
}

// record names a history record so that names sort by time.
func (k keys) record(provider string, at time.Time, random string) string {
	return k.history(provider) + at.UTC().Format("20060102T150405.000000000Z") + "-" + random
}

// providerOf returns the provider whose policy the key holds.
func (k keys) providerOf(key string) (string, bool) {
	escaped, ok := strings.CutSuffix(strings.TrimPrefix(key, k.providers()), "/"+policyPart)
	if !ok || !strings.HasPrefix(key, k.providers()) || strings.Contains(escaped, "/") {
		return "", false
	}
	name, err := url.PathUnescape(escaped)
	return name, err == nil
}

// incarnationOf returns the incarnation that the last part of the key names.
func incarnationOf(key string) (string, bool) {
	id, err := url.PathUnescape(key[strings.LastIndexByte(key, '/')+1:])
	return id, err == nil && id != ""
}
