package coordinator

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// If shares are by demand, the oldest live instance collects all reports and writes
// them as the level. Its death shows late. So a few of the next oldest look too, each
// less often than the one before, and write a missing level. If they are gone too, the
// next does when the level is old. Two writers at once do no harm, and neither does a
// writer of nonsense: a level only lists demands, and every instance computes the
// shares from that.
const (
	divideEvery  = 2 * time.Second // at most, where demands have moved
	divideEach   = 8 * time.Millisecond
	deputies     = 3                // instances that look after the oldest
	divideShift  = 2                // percent of all claims that must have moved
	levelRenewed = 10 * time.Second // at least
	levelLasts   = 30 * time.Second // after its last entry's From: then shares are equal
)

// dividePause is how far levels are apart where n instances read them: a level
// lists n demands, so the bytes that etcd sends to an instance in a second do not
// grow with n.
func dividePause(n int) time.Duration { return max(divideEvery, time.Duration(n)*divideEach) }

func (p *membership) levelLocked(l *protocol.Level) {
	if p.level = l; l != nil {
		p.levelled = p.s.o.Clock.Mono()
	}
}

// divide writes a new level, if it is this instance's turn and there is reason.
func (p *membership) divide(ctx context.Context, last *reporting, now int64) {
	p.mu.Lock()
	w := p.writerLocked(view.Level)
	pause := dividePause(len(w.ids))
	age := time.Duration(now - p.levelled)
	v := protocol.View{Policy: p.policy, Level: p.level}
	p.mu.Unlock()
	turn := w.may && (age > w.rank*pause && w.rank <= deputies || age > max(levelRenewed, 2*pause)+w.rank*pause)
	if !turn || last.read != 0 && time.Duration(now-last.read) < min(w.rank+1, deputies)*pause {
		return
	}
	last.read = now
	for _, i := range w.ids {
		v.Instances = append(v.Instances, protocol.Instance{ID: i})
	}
	demands := make(map[string]int64, len(w.ids))
	revision, err := p.reportsOf(ctx, w.ids, func(id string, r *protocol.Report) { demands[id] = r.Demand })
	if err != nil {
		return // the level lasts longer than the next try
	}
	l, ok := nextLevel(&v, demands, revision, p.s.o.Clock.Wall())
	if !ok {
		return
	}
	l.Author, l.Time = w.id, time.Unix(0, p.s.o.Clock.Wall()).UTC()
	_, _ = w.replace(ctx, p.s.kv, p.s.keys.Level(p.provider), w.revision, &l) // if that fails it is tried again
}

// writer is an instance that may write what all instances read.
type writer struct {
	incarnation
	may      bool // it is in the view, and has announced no end
	rank     time.Duration
	ids      []string // of all
	revision int64    // of the key to be written
}

func (p *membership) writerLocked(of view.Kind) writer {
	may := p.key != "" && p.until == 0 && p.tracker.Has(p.id)
	return writer{p.incarnation, may, time.Duration(p.tracker.Rank(p.id)), p.tracker.IDs(), p.tracker.Revision(of)}
}

// reportsOf calls f with the newest reports of these instances, and returns the revision
// read. Any member may answer: neither a level nor a pace need be recent.
func (p *membership) reportsOf(ctx context.Context, ids []string, f func(id string, r *protocol.Report)) (revision int64, err error) {
	slices.Sort(ids)
	folder := p.s.keys.Reports(p.provider)
	err = eachKey(folder, clientv3.GetPrefixRangeEnd(folder), func(from string, o ...clientv3.OpOption) (*pb.RangeResponse, error) {
		r, err := p.s.kv.Get(ctx, from, append(o, clientv3.WithSerializable())...)
		if err == nil {
			revision = r.Header.Revision
		}
		return (*pb.RangeResponse)(r), err
	}, nil, func(kv *mvccpb.KeyValue) {
		id, ok := keys.IncarnationIn(folder, string(kv.Key))
		if _, live := slices.BinarySearch(ids, id); ok && live {
			r, _ := readReport(kv.Value) // one that cannot be read asks for nothing
			f(id, &r)
		}
	})
	return revision, err
}

// nextLevel returns the level to write, at corrected wall-clock time now; ok is
// false if there is no need of one, or no room.
func nextLevel(v *protocol.View, demands map[string]int64, revision, now int64) (l protocol.Level, ok bool) {
	policy := v.Policy
	if policy == nil || policy.Share != quota.ShareDemand {
		return l, false
	}
	from := protocol.FirstWindow(now, policy)
	e := share.NewEntry(demands, revision, from)
	pause := dividePause(len(v.Instances))
	if current := v.Level; current.At(from.UnixNano()) != nil {
		renew := current.Until.UnixNano()-now < int64(levelLasts-levelRenewed+pause)
		if !renew && !share.Shifted(v, e, divideShift) {
			return l, false
		}
	}
	l, ok = share.Extend(v.Level, e, now-int64(policy.DriftWindow()))
	l.Until = from.Add(levelLasts + pause)
	return l, ok
}
