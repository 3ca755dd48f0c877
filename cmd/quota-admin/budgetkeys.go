package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

// keyCounts are the flags of budget that are about keys.
type keyCounts struct {
	key, file        string
	unused, withhold bool
	window           time.Duration // of --limit; 0 without
}

func (k *keyCounts) any() bool { return k.key != "" || k.file != "" || k.unused || k.withhold }

// check refuses flags that do not belong together.
func (k *keyCounts) check(cmd *cobra.Command, used bool, limit string) error {
	n := 0
	for _, given := range []bool{k.key != "", k.file != "", k.unused, k.withhold} {
		if given {
			n++
		}
	}
	switch {
	case n > 1:
		return usageError(cmd, "--key, --keys-file, --keys-unused and --withhold do not go together: give one")
	case used && k.any() && k.key == "":
		return usageError(cmd, "--used is the count of the provider, or with --key that of a key: give it alone or with --key")
	case limit != "" && !used && !k.any():
		return usageError(cmd, "--limit says which limit the counts are of: give them by --used, or those of keys")
	case k.key != "":
		if err := protocol.ValidateKey(k.key); err != nil {
			return usageError(cmd, "--key: %v", err)
		}
	}
	if k.any() && limit != "" {
		l, err := quota.ParseLimits(limit)
		if err != nil || len(l) != 1 {
			return usageError(cmd, "--limit %s: must be one limit, such as 5000/h", limit)
		}
		k.window = l[0].Window
	}
	return nil
}

// keysBudgetJSON is what a restore withholds of a long limit of all keys.
type keysBudgetJSON struct {
	Limit    string    `json:"limit"`
	Start    time.Time `json:"start"`
	End      time.Time `json:"end"`
	Withheld string    `json:"withheld,omitempty"`

	sliding bool
}

func (b *keysBudgetJSON) table(w io.Writer, provider string) {
	format.Row(w, b.Limit, spanOf(b.sliding, b.End)+", of each key")
	if b.Withheld == "" {
		format.Row(w, "", "--key KEY shows one")
	} else {
		format.Row(w, "Withheld", "all keys that were given no count since, because "+b.Withheld)
		format.Row(w, "", "give the provider's counts: quota-admin budget "+provider+" --key KEY --used N, or --keys-file FILE; then --keys-unused for all other keys")
	}
}

// keyBudgetJSON is a window of a long limit of one key.
type keyBudgetJSON struct {
	Key       string    `json:"key"`
	Limit     string    `json:"limit"`
	Start     time.Time `json:"start"`
	End       time.Time `json:"end"`
	HandedOut int64     `json:"handed_out"` // taken by instances and not given back
	Left      int64     `json:"left"`
	Withheld  string    `json:"withheld,omitempty"`
	statedJSON

	sliding bool
	permits int64 // of the limit
}

// statedJSON is what the provider's answers take away of a limit.
type statedJSON struct {
	// Elsewhere are neither handed out nor left: by the provider's count they were used elsewhere. They
	// count until StatedUntil. An answer that names no limit counts nothing: by it nothing is left until then.
	Elsewhere   int64     `json:"used_elsewhere,omitempty"`
	StatedUntil time.Time `json:"stated_until,omitzero"`

	stopped bool // nothing is left until StatedUntil, and no count says why
}

func statedOf(found *escrow.Purse, permits int64) (s statedJSON) {
	stated := found.Total().Stated
	if stated.Until == 0 || found.Withheld() != "" {
		return s
	}
	s.StatedUntil = time.Unix(0, stated.Until).UTC()
	left := found.Left(permits)
	missing := max(0, permits-found.Out()-left)
	if s.stopped = stated.Of == 0 && left == 0 && missing > 0; !s.stopped {
		s.Elsewhere = missing
	}
	return s
}

// table shows it; count is which count ends a stop.
func (s *statedJSON) table(w io.Writer, count string) {
	if s.Elsewhere > 0 {
		format.Row(w, "Elsewhere", fmt.Sprintf("%d used, by the provider's count, until %s", s.Elsewhere, format.Exact(s.StatedUntil)))
	}
	if s.stopped {
		format.Row(w, "Stopped", fmt.Sprintf("nothing more until %s, %s; to end it sooner give %s by --used N", format.Exact(s.StatedUntil), cause.Stopped, count))
	}
}

func (b *keyBudgetJSON) table(w io.Writer) {
	format.Row(w, b.Limit, spanOf(b.sliding, b.End)+", of key "+format.Show(b.Key))
	format.Row(w, "Handed out", fmt.Sprintf("%d of %d, %d left; some may be in hand, or lost by a crash: nobody reports by key how many are used", b.HandedOut, b.permits, b.Left))
	b.statedJSON.table(w, fmt.Sprintf("the provider's count, or %d if that is more,", b.HandedOut))
	if b.Withheld != "" {
		format.Row(w, "Withheld", b.Withheld+"; give the provider's count by --used N")
	}
}

// keyCount is the provider's count of a key.
type keyCount struct {
	key  string
	used int64
}

// keyWindow is a window of a key, as etcd has it.
type keyWindow struct {
	protocol.Budget
	keyCount
	path    string
	found   escrow.Purse
	cluster uint64 // that has answered
	counts  int64  // as of budgetJSON
}

func (w *keyWindow) shown() *keyBudgetJSON {
	return &keyBudgetJSON{
		Key: w.key, Limit: w.String(), Start: time.Unix(0, w.Start).UTC(), End: time.Unix(0, w.End).UTC(),
		HandedOut: w.found.Out(), Left: w.found.Left(w.Permits), Withheld: w.found.Withheld(),
		statedJSON: statedOf(&w.found, w.Permits), sliding: w.Sliding, permits: w.Permits,
	}
}

// errNoLong is what is wrong with a key without a limit that budget could show.
var errNoLong = errors.New("no limit of more than a minute")

// without says of a policy where its limits of more than a minute are, if a key has none.
func without(p *quota.Policy, provider string) string {
	switch {
	case len(p.Keys.Limits) == 0 && len(protocol.Long(p)) == 0:
		return ", for " + provider + " has no limits by key, and none of more than a minute"
	case len(p.Keys.Limits) == 0:
		return ", for " + provider + " has no limits by key: without --key the command shows those of the provider"
	case len(protocol.Long(p)) == 0:
		return ", and " + provider + " has none either"
	}
	return ": without --key the command shows those of the provider"
}

// chosen returns those windows of a key that --limit names, or all. If a count is given it is only one.
func (k *keyCounts) chosen(has []protocol.Budget, c keyCount) ([]protocol.Budget, error) {
	all := slices.DeleteFunc(slices.Clone(has), func(b protocol.Budget) bool { return k.window != 0 && b.Window != k.window })
	switch {
	case len(has) == 0:
		return nil, errNoLong
	case len(all) == 0:
		return nil, fmt.Errorf("no limit of the window that --limit names, but %s", windowsOf(has))
	case len(all) > 1 && c.used >= 0:
		return nil, fmt.Errorf("several limits of more than a minute, %s: name the one that is counted by --limit", windowsOf(has))
	}
	return all, nil
}

func (a *app) budgetOfKeys(ctx context.Context, etcd connection, provider string, k *keyCounts, used int64) error {
	layout, err := keys.New(a.etcd.Prefix)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.etcd.CommandTimeout)
	defer cancel()
	o, err := feed.Inside(etcd.Client).Overrides(ctx, provider)
	if err != nil {
		return err
	}
	if k.unused || k.withhold {
		return a.remark(ctx, etcd, layout.BudgetMark(provider), provider, &o.Policy.Policy, k.unused)
	}
	counts := []keyCount{{k.key, used}}
	if k.file != "" {
		if counts, err = a.readCounts(k.file); err != nil {
			return err
		}
	}
	was, err := readWas(ctx, etcd.client, layout.BudgetsBefore(provider))
	if err != nil {
		return err
	}
	var windows []*keyWindow
	for _, c := range counts {
		of := o.Policy.Policy.WithDefaults()
		of.Keys = o.Keys[c.key].In(of.Keys)
		all, err := k.chosen(protocol.KeyBudgetsAt(&of, time.Now().UnixNano()), c)
		if errors.Is(err, errNoLong) {
			err = fmt.Errorf("%w%s", err, without(&o.Policy.Policy, provider))
		}
		if err != nil {
			return fmt.Errorf("key %s of %s has %w", format.Show(c.key), provider, err)
		}
		for _, b := range all {
			windows = append(windows, &keyWindow{Budget: b, keyCount: c, path: layout.BudgetOfKey(provider, b.Name(), b.TotalStart(), c.key), counts: protocol.CarriedTo(was, &b, c.key)})
		}
	}
	shown := []*keyBudgetJSON{}
	var failed []error
	for chunk := range slices.Chunk(windows, keysTogether) {
		if err := readKeys(ctx, etcd.client, layout.BudgetMark(provider), chunk); err != nil {
			return err
		}
		if chunk[0].used >= 0 {
			for open, try := chunk, 1; len(open) > 0; try++ {
				wrong, taken, err := correctKeys(ctx, etcd.client, open)
				if failed = append(failed, wrong...); err != nil {
					return errors.Join(append(failed, err)...)
				}
				if err := readKeys(ctx, etcd.client, layout.BudgetMark(provider), chunk); err != nil {
					return err
				}
				if open = taken; try == correctTries {
					for _, w := range taken {
						failed = append(failed, fmt.Errorf("key %s: %w", format.Show(w.key), errTaken))
					}
					break
				}
			}
		}
		for _, w := range chunk {
			shown = append(shown, w.shown())
		}
	}
	if err := a.emit(map[string]any{"provider": provider, "keys": shown}, func(w io.Writer) {
		for _, b := range shown {
			b.table(w)
		}
	}); err != nil {
		return err
	}
	return errors.Join(failed...)
}

// keysTogether is how many keys one transaction reads or writes: etcd takes 128 operations.
const keysTogether = 60

// maxCounts bounds the keys of a file.
const maxCounts = 1_000_000

// readCounts reads a file with a key and a number in each line. The number is what stands behind
// the last space or tab.
func (a *app) readCounts(name string) (all []keyCount, err error) {
	in := a.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	seen := map[string]bool{}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		at := strings.LastIndexAny(text, " \t")
		if at < 0 {
			return nil, fmt.Errorf("%s, line %d: %q: must be a key, a space and the permits that it used", name, n, text)
		}
		c := keyCount{key: strings.TrimSpace(text[:at])}
		if c.used, err = whole(0, quota.MaxPermits)(text[at+1:]); err == nil {
			err = protocol.ValidateKey(c.key)
		}
		if err == nil && seen[c.key] {
			err = errors.New("the key stands there twice")
		}
		if seen[c.key] = true; err != nil {
			return nil, fmt.Errorf("%s, line %d: %q: %w", name, n, text, err)
		}
		if all = append(all, c); len(all) > maxCounts {
			return nil, fmt.Errorf("%s has more than %d keys: make it several files", name, maxCounts)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no keys", name)
	}
	return all, nil
}

// readWas reads which long limits a policy has no more, whose counts go on in others.
func readWas(ctx context.Context, client *clientv3.Client, key string) ([]protocol.Was, error) {
	r, err := client.Get(ctx, key)
	if err != nil {
		return nil, etcdcall.Wrap(ctx, "read which limits the policy had before", err)
	}
	for _, kv := range r.Kvs {
		return protocol.ReadWas(kv.Value)
	}
	return nil, nil
}

// purseOf returns a purse that has read the total in an answer, as it counts at an instant by the wall clock. verdict is
// what the mark of the store says of the window.
func purseOf(r *etcdserverpb.RangeResponse, of protocol.Part, verdict *escrow.Verdict, now int64) (found escrow.Purse) {
	found.Part = of
	found.Read(nil, 0, verdict)
	for _, kv := range r.GetKvs() {
		found.Read(kv.Value, kv.ModRevision, verdict)
	}
	found.Forget(now)
	return found
}

// readKeys reads windows of keys together.
func readKeys(ctx context.Context, client *clientv3.Client, mark string, all []*keyWindow) error {
	ops := []clientv3.Op{clientv3.OpGet(mark)}
	for _, w := range all {
		ops = append(ops, clientv3.OpGet(w.path))
	}
	r, err := client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return etcdcall.Wrap(ctx, "read the budgets of keys", err)
	}
	m := markIn(r.Responses[0].GetResponseRange(), r.Header.ClusterId)
	for i, w := range all {
		w.cluster = r.Header.ClusterId
		w.found = purseOf(r.Responses[1+i].GetResponseRange(), w.Part(), m.Seen(w.Since(), true), time.Now().UnixNano())
	}
	return nil
}

// windowsOf returns the limits of windows as text.
func windowsOf(all []protocol.Budget) string {
	var names []string
	for _, b := range all {
		names = append(names, "'"+b.String()+"'")
	}
	return strings.Join(names, ", ")
}

// correctKeys writes what was used of keys' windows, each unless it was written since it was read: it
// returns these as taken.
func correctKeys(ctx context.Context, client *clientv3.Client, all []*keyWindow) (failed []error, taken []*keyWindow, err error) {
	var ops []clientv3.Op
	var sent []*keyWindow
	leases := map[time.Duration]clientv3.LeaseID{}
	for _, w := range all {
		have, withheld := w.found.Out(), w.found.Withheld() != ""
		if !withheld && w.used < have {
			more := ", which ends the stop too"
			if !w.shown().stopped {
				more = fmt.Sprintf("; if the key needs more permits before %s, give it a larger limit by quota-admin keys set", format.Exact(time.Unix(0, w.Until()).UTC()))
			}
			failed = append(failed, fmt.Errorf("key %s: %d permits count as handed out, and the provider's count cannot be less: give %d or more%s", format.Show(w.key), have, have, more))
			continue
		}
		lease := clientv3.WithIgnoreLease()
		if seconds := w.Lease(w.found.Revision()); seconds > 0 {
			if _, ok := leases[w.Window]; !ok {
				l, err := client.Grant(ctx, seconds)
				if err != nil {
					return failed, nil, etcdcall.Wrap(ctx, "correct the budgets of keys", err)
				}
				leases[w.Window] = l.ID
			}
			lease = clientv3.WithLease(leases[w.Window])
		}
		total := w.found.Total()
		if withheld {
			total = total.Corrected(w.used, 0, w.counts, w.Part(), w.cluster)
		} else {
			total = total.Counted(w.used, w.Permits, w.Until(), w.Part(), w.cluster)
		}
		total.Limit = w.Permits
		text, err := escrow.Encode(total)
		if err != nil {
			return failed, nil, err
		}
		sent = append(sent, w)
		ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(w.path), "=", w.found.Revision())}, []clientv3.Op{clientv3.OpPut(w.path, text, lease)}, nil))
	}
	if len(ops) == 0 {
		return failed, nil, nil
	}
	r, err := client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return failed, nil, etcdcall.Wrap(ctx, "correct the budgets of keys", err)
	}
	for i, w := range sent {
		if !r.Responses[i].GetResponseTxn().Succeeded {
			taken = append(taken, w)
		}
	}
	return failed, taken, nil
}
