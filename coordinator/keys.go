package coordinator

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
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

func (k keys) allObservers() string { return k.prefix + "observers/" }

func (k keys) observers(provider string) string {
	return k.allObservers() + url.PathEscape(provider) + "/"
}

func (k keys) observer(provider, id string) string {
	return k.observers(provider) + url.PathEscape(id)
}

func (k keys) histories() string { return k.prefix + "history/" }

func (k keys) history(provider string) string {
	return k.histories() + url.PathEscape(provider) + "/"
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
	return unescape(escaped)
}

// afterInstances returns where a listing of policies that came to key goes on: a
// fleet's instances are passed over.
func (k keys) afterInstances(key string) string {
	rest, ok := strings.CutPrefix(key, k.providers())
	escaped, inner, _ := strings.Cut(rest, "/")
	if ok && strings.HasPrefix(inner, instancesPart) {
		return clientv3.GetPrefixRangeEnd(k.providers() + escaped + "/" + instancesPart)
	}
	return key + "\x00"
}

// incarnationIn returns the incarnation whose key lies directly under folder.
func incarnationIn(folder, key string) (string, bool) {
	escaped, ok := strings.CutPrefix(key, folder)
	if !ok {
		return "", false
	}
	return unescape(escaped)
}

// unescape is the reverse of url.PathEscape, for nothing else: two keys never
// name the same provider or incarnation.
func unescape(escaped string) (string, bool) {
	name, err := url.PathUnescape(escaped)
	return name, err == nil && name != "" && url.PathEscape(name) == escaped
}
