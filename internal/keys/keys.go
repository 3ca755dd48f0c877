// Package keys spells every key that Quotient has in etcd. Nothing else does.
//
// A provider's name is escaped to one path element, so that no provider's keys lie
// under another's. All that a share depends on lies under one prefix for each
// provider, so that one watch sees it in order.
package keys

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// DefaultPrefix is where Quotient's keys lie.
const DefaultPrefix = "/quotient/v1/"

const maxPrefixBytes = 128

// Layout is where the keys of one prefix lie.
type Layout struct{ prefix string }

// New returns the layout under a prefix, "" for DefaultPrefix.
func New(prefix string) (Layout, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if !strings.HasPrefix(prefix, "/") || !strings.HasSuffix(prefix, "/") || len(prefix) > maxPrefixBytes {
		return Layout{}, fmt.Errorf("prefix %q: must begin and end with a slash and have at most %d bytes; the default is %s", prefix, maxPrefixBytes, DefaultPrefix)
	}
	return Layout{prefix}, nil
}

// Of returns the folder that a key lies in, such as "loans", and the provider; both are empty
// where it is no provider's.
func (k Layout) Of(key string) (kind, provider string) {
	rest, ok := strings.CutPrefix(key, k.prefix)
	kind, rest, within := strings.Cut(rest, "/")
	escaped, _, _ := strings.Cut(rest, "/")
	provider, named := unescape(escaped)
	if !ok || !within || !named {
		return "", ""
	}
	return kind, provider
}

// MaxIncarnationBytes bounds the name of an instance's key. Instances give
// themselves about 100 bytes; a longer one is no instance's.
const MaxIncarnationBytes = 256

const (
	policyPart    = "policy"
	instancesPart = "instances/"
	overridesPart = "overrides/"
)

// folder is that of a provider's keys of one kind, or of all providers' if provider is
// empty. So are the folders below.
func (k Layout) folder(kind, provider string) string {
	if provider == "" {
		return k.prefix + kind + "/"
	}
	return k.prefix + kind + "/" + url.PathEscape(provider) + "/"
}

// Provider is the folder of all that shares of a provider depend on.
func (k Layout) Provider(name string) string { return k.folder("providers", name) }

// Policy is the key of a policy.
func (k Layout) Policy(provider string) string { return k.Provider(provider) + policyPart }

// Throttle is the key of what the provider takes at present.
func (k Layout) Throttle(provider string) string { return k.Provider(provider) + "throttle" }

// Instances is the folder of instances.
func (k Layout) Instances(provider string) string { return k.Provider(provider) + instancesPart }

// Instance is the key of an incarnation.
func (k Layout) Instance(provider, incarnation string) string {
	return k.Instances(provider) + url.PathEscape(incarnation)
}

// AllOverrides is the folder of the overrides of a provider's keys.
func (k Layout) AllOverrides(provider string) string { return k.Provider(provider) + overridesPart }

// Overrides is the key of the document with the overrides of one bucket.
func (k Layout) Overrides(provider string, bucket int) string {
	return fmt.Sprintf("%s%02d", k.AllOverrides(provider), bucket)
}

// BucketOf returns the bucket of which the key holds overrides of a provider.
func (k Layout) BucketOf(provider, key string) (bucket int, ok bool) {
	number, ok := strings.CutPrefix(key, k.AllOverrides(provider))
	bucket, err := strconv.Atoi(number)
	return bucket, ok && err == nil && bucket < protocol.OverrideBuckets && key == k.Overrides(provider, bucket)
}

// Reports is the folder of instances' reports.
func (k Layout) Reports(provider string) string { return k.folder("reports", provider) }

// Report is the key of an incarnation's report.
func (k Layout) Report(provider, incarnation string) string {
	return k.Reports(provider) + url.PathEscape(incarnation)
}

// Issuers is the folder of the incarnations that may issue permits of a provider: each has
// a key there, without a lease, until nothing can be issued in its name any more.
func (k Layout) Issuers(provider string) string { return k.folder("issuers", provider) }

// Issuer is the key of one of them.
func (k Layout) Issuer(provider, incarnation string) string {
	return k.Issuers(provider) + url.PathEscape(incarnation)
}

// AllLoans is the folder of the loans of a provider's instances.
func (k Layout) AllLoans(provider string) string { return k.folder("loans", provider) }

// Loans is the folder of what a guest is lent, with a key for each host.
func (k Layout) Loans(provider, guest string) string {
	return k.AllLoans(provider) + url.PathEscape(guest) + "/"
}

// AllAsks is the folder of what a provider's instances ask each other for.
func (k Layout) AllAsks(provider string) string { return k.folder("asks", provider) }

// Asks is the folder of what one host is asked for, with a key for each guest.
func (k Layout) Asks(provider, host string) string {
	return k.AllAsks(provider) + "host/" + url.PathEscape(host) + "/"
}

// SampleAsks is the folder of what samples of all hosts are asked for, with a key for each
// guest.
func (k Layout) SampleAsks(provider string) string { return k.AllAsks(provider) + "sample/" }

// AskOf returns what the key of an ask is about; host is empty if a sample is asked.
func (k Layout) AskOf(key string) (provider, host, guest string, ok bool) {
	rest, ok := strings.CutPrefix(key, k.AllAsks(""))
	escaped, rest, _ := strings.Cut(rest, "/")
	provider, named := unescape(escaped)
	if !ok || !named {
		return "", "", "", false
	}
	folder := k.SampleAsks(provider)
	if of, addressed := strings.CutPrefix(rest, "host/"); addressed {
		escaped, _, _ = strings.Cut(of, "/")
		if host, named = unescape(escaped); !named {
			return "", "", "", false
		}
		folder = k.Asks(provider, host)
	}
	guest, ok = IncarnationIn(folder, key)
	return provider, host, guest, ok
}

// In is the key of an incarnation directly under a folder, as IncarnationIn reads it.
func In(folder, incarnation string) string { return folder + url.PathEscape(incarnation) }

// Budgets is the folder of the permits of long windows that instances have taken.
func (k Layout) Budgets(provider string) string { return k.folder("budgets", provider) }

// BudgetMark is the key of the mark that says in which store the provider's long windows count.
func (k Layout) BudgetMark(provider string) string { return k.Budgets(provider) + "mark" }

// BudgetsBefore is the key of the long limits that the policy has no more: protocol.Was.
func (k Layout) BudgetsBefore(provider string) string { return k.Budgets(provider) + "was" }

// BudgetTotals is the folder of a budget's totals, with a key for each window. window is
// its length as in a limit.
func (k Layout) BudgetTotals(provider, window string) string {
	return k.Budgets(provider) + window + "/totals/"
}

// BudgetTotal is the key of the window that starts at wall, in nanoseconds since the Unix
// epoch.
func (k Layout) BudgetTotal(provider, window string, wall int64) string {
	return fmt.Sprintf("%s%020d", k.BudgetTotals(provider, window), wall/int64(time.Second))
}

// BudgetsOfKeys is the folder of the totals of a provider's keys in all windows of a length.
func (k Layout) BudgetsOfKeys(provider, window string) string {
	return k.Budgets(provider) + window + "/keys/"
}

// BudgetOfKey is the key of the total of a provider's key in the window that starts at wall.
func (k Layout) BudgetOfKey(provider, window string, wall int64, name string) string {
	return fmt.Sprintf("%s%020d/%s", k.BudgetsOfKeys(provider, window), wall/int64(time.Second), url.PathEscape(name))
}

// Observers is the folder of those that look at a provider.
func (k Layout) Observers(provider string) string { return k.folder("observers", provider) }

// Observer is the key of one of them.
func (k Layout) Observer(provider, id string) string {
	return k.Observers(provider) + url.PathEscape(id)
}

// ObservedBy returns the provider that the key of an observer is about.
func (k Layout) ObservedBy(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, k.Observers(""))
	escaped, _, inner := strings.Cut(rest, "/")
	if !ok || !inner {
		return "", false
	}
	return unescape(escaped)
}

// History is the folder of the records of a provider's changes.
func (k Layout) History(provider string) string { return k.folder("history", provider) }

// Record names a history record so that names sort by time.
func (k Layout) Record(provider string, at time.Time, random string) string {
	return k.History(provider) + at.UTC().Format("20060102T150405.000000000Z") + "-" + random
}

// Superseded is the folder of the policies of a provider that instances may still
// rely on.
func (k Layout) Superseded(provider string) string { return k.folder("superseded", provider) }

// ProviderOf returns the provider whose policy the key holds.
func (k Layout) ProviderOf(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, k.Provider(""))
	escaped, inner, _ := strings.Cut(rest, "/")
	if !ok || inner != policyPart {
		return "", false
	}
	return unescape(escaped)
}

// AfterMany returns where a listing of policies that came to key goes on: a fleet's instances
// and the overrides of keys are passed over.
func (k Layout) AfterMany(key string) string {
	rest, ok := strings.CutPrefix(key, k.Provider(""))
	escaped, inner, _ := strings.Cut(rest, "/")
	for _, part := range []string{instancesPart, overridesPart} {
		if ok && strings.HasPrefix(inner, part) {
			return clientv3.GetPrefixRangeEnd(k.Provider("") + escaped + "/" + part)
		}
	}
	return key + "\x00"
}

// IncarnationIn returns the incarnation whose key lies directly under folder.
func IncarnationIn(folder, key string) (string, bool) {
	escaped, ok := strings.CutPrefix(key, folder)
	if !ok || len(escaped) > MaxIncarnationBytes {
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

// Prefix returns the prefix of all keys.
func (k Layout) Prefix() string { return k.prefix }
