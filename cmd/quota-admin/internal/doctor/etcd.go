package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/diagnose"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
)

// Beyond these, doctor speaks up.
const (
	// slowRead: a proof of freshness is a read like this one; the default
	// freshness leaves 600 ms for each.
	slowRead = 100 * time.Millisecond
	// fullDatabase is the part of its quota from which on a database is nearly
	// full: at all of it etcd takes no more writes, and instances cannot join.
	fullDatabase = 0.8
	// defaultQuota is what etcd allows a database unless it is told.
	defaultQuota = 2 << 30
	// muchHistory is how many revisions etcd may keep: far more than compaction
	// once an hour leaves by all that a large fleet writes.
	muchHistory = 1_000_000
	// lagging is how many revisions a member may be behind another, asked a moment
	// apart.
	lagging = 10_000
	// readings are taken of each round trip; the fastest counts.
	readings = 3
	// doctorKey is read; nobody writes it.
	doctorKey = "quotient-doctor"
)

type etcdFacts struct {
	endpoints []endpointFacts
	quorum    struct { // a linearizable read, which takes a majority of the members
		took time.Duration
		err  error
	}
	revision    int64  // of the store; 0: not known
	longHistory bool   // it keeps more than muchHistory
	members     int    // voting ones, as far as they are known
	admit       string // what to do if etcd refuses the user
}

type endpointFacts struct {
	endpoint string
	err      error
	found    *diagnose.Found // why that is; nil if it is not known
	took     time.Duration
	status   *clientv3.StatusResponse // nil if err is not
	list     []string                 // of members, as it says itself; empty if it does not say
}

func readEtcd(ctx context.Context, client *clientv3.Client, timeout time.Duration) *etcdFacts {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	f := &etcdFacts{endpoints: make([]endpointFacts, len(client.Endpoints()))}
	var all sync.WaitGroup
	for i, name := range client.Endpoints() {
		all.Go(func() {
			e := &f.endpoints[i]
			e.endpoint = name
			e.took, e.err = fastest(func() (err error) {
				e.status, err = client.Status(ctx, name)
				return err
			})
			e.list = membersBy(ctx, client, name)
		})
	}
	all.Go(func() {
		f.quorum.took, f.quorum.err = fastest(func() error {
			r, err := client.Get(ctx, doctorKey, clientv3.WithCountOnly())
			switch {
			case err == nil:
				f.revision = r.Header.Revision
			case errors.Is(err, rpctypes.ErrPermissionDenied):
				return nil // it was decided by a majority, all the same
			}
			return err
		})
		f.quorum.err = etcdcall.Wrap(context.WithoutCancel(ctx), "read", f.quorum.err)
		var err error
		if f.longHistory, err = longHistory(ctx, client, f.revision, muchHistory); err != nil {
			f.revision = 0
		}
	})
	all.Go(func() {
		if r, err := client.MemberList(ctx); err == nil {
			for _, m := range r.Members {
				if !m.IsLearner {
					f.members++
				}
			}
		}
	})
	all.Wait()
	if slices.ContainsFunc(f.endpoints, func(e endpointFacts) bool { return e.err != nil }) {
		for i, found := range diagnose.Endpoints(ctx, client, nil) {
			if !found.Answers {
				f.endpoints[i].found = &found
			}
		}
	}
	return f
}

// membersBy asks one endpoint for the members of its cluster, and no other endpoint.
func membersBy(ctx context.Context, client *clientv3.Client, endpoint string) (list []string) {
	conn, err := client.Dial(endpoint)
	if err != nil {
		return nil
	}
	defer conn.Close()
	r, err := etcdserverpb.NewClusterClient(conn).MemberList(ctx, &etcdserverpb.MemberListRequest{})
	if err != nil {
		return nil
	}
	for _, m := range r.Members {
		list = append(list, fmt.Sprintf("%s (%x) at %s", cmp.Or(m.Name, "a member that has not started"), m.ID, strings.Join(m.PeerURLs, ",")))
	}
	slices.Sort(list)
	return list
}

// fastest returns how long f takes at best, or its first error.
func fastest(f func() error) (least time.Duration, err error) {
	least = math.MaxInt64
	for range readings {
		began := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		least = min(least, time.Since(began))
	}
	return least, nil
}

func longHistory(ctx context.Context, client *clientv3.Client, revision, ago int64) (bool, error) {
	if revision <= ago {
		return false, nil
	}
	_, err := client.Get(ctx, doctorKey, clientv3.WithCountOnly(), clientv3.WithRev(revision-ago))
	if errors.Is(err, rpctypes.ErrCompacted) {
		return false, nil
	}
	return err == nil, err
}

func judgeEtcd(c *Chart, f *etcdFacts) {
	var answering []*endpointFacts
	newest := int64(0)
	for i := range f.endpoints {
		e := &f.endpoints[i]
		judgeEndpoint(c, e)
		if e.err == nil {
			answering, newest = append(answering, e), max(newest, e.status.Header.Revision)
		}
	}
	for _, e := range answering {
		h, first := e.status.Header, answering[0].status.Header
		switch {
		case h.ClusterId != first.ClusterId:
			c.add(problem, "etcd", e.endpoint, "name the members of one cluster only", "belongs to another cluster (%x) than %s (%x)",
				h.ClusterId, answering[0].endpoint, first.ClusterId)
		case newest-h.Revision > lagging:
			c.add(problem, "etcd", e.endpoint, "see whether it reaches its peers, and its disk", "is %d revisions behind", newest-h.Revision)
		}
	}
	judgeMembers(c, answering)
	switch {
	case f.members == 1:
		c.add(note, "etcd", "cluster", "run three members", "has one member: when it restarts, instances live by their outage rule")
	case f.members > 0 && f.members%2 == 0:
		c.add(note, "etcd", "cluster", fmt.Sprintf("add a member or remove one: %d survive no more failures than %d", f.members, f.members-1), "has %d members", f.members)
	}
	if f.members > len(f.endpoints) {
		c.add(note, "etcd", "cluster", "name all of them in --endpoints, so that the loss of one is survived", "has %d members, %s named", f.members, format.Count(len(f.endpoints), "endpoint"))
	}
	switch q := f.quorum; {
	case errors.Is(q.err, coordinator.ErrPermission):
		c.add(problem, "etcd", "cluster", f.admit, "refuses this user, so it is not known how well it is: %s", brief(q.err))
		return
	case q.err != nil && len(answering) == 0: // members that were not asked may run
		c.add(problem, "etcd", "cluster", "name all members in --endpoints: others may run; more than half of them must, and reach each other",
			"no address that was asked answers: %s", brief(q.err))
		return
	case q.err != nil:
		c.add(problem, "etcd", "cluster", "more than half of the members must run and reach each other: see the lines above, and their logs",
			"no majority of the members answers a read: %s", brief(q.err))
		return
	case q.took > slowRead:
		c.add(problem, "etcd", "cluster", "look for slow disks (etcd_disk_wal_fsync_duration_seconds) and for the network between the members, or raise settle and freshness",
			"a read takes %v; instances learn by such reads that their shares are still right", q.took.Round(time.Millisecond))
	default:
		c.add(ok, "etcd", "cluster", "", "a read takes %v", rounded(q.took))
	}
	switch {
	case f.revision == 0:
	case f.longHistory:
		c.add(problem, "etcd", "cluster", "start etcd with --auto-compaction-mode=periodic --auto-compaction-retention=10m",
			"it keeps more than %d revisions: the database grows without bound", muchHistory)
	default:
		c.add(ok, "etcd", "cluster", "", "it keeps fewer than %d revisions", muchHistory)
	}
}

// judgeMembers compares the endpoints' lists of members. Endpoints that are the same member
// are one member that is named twice, or clusters of one member each, which a restore
// without --name and --initial-cluster makes.
func judgeMembers(c *Chart, answering []*endpointFacts) {
	const mend = "restore all of them again, with --name, --initial-cluster and one new token; until then stop all but one"
	first := map[uint64]string{} // endpoint by member
	for i, e := range answering {
		id := e.status.Header.MemberId
		if other, twice := first[id]; twice && id != 0 {
			c.add(problem, "etcd", e.endpoint, "name each member once in --endpoints; if these are two hosts, "+mend,
				"is the same member (%x) as %s: one member that is named twice, or two clusters", id, other)
			continue
		}
		first[id] = e.endpoint
		if a, b := answering[0], e; i > 0 && len(a.list) > 0 && len(b.list) > 0 && !slices.Equal(a.list, b.list) {
			c.add(problem, "etcd", e.endpoint, "if a member was added or removed a moment ago, ask again; otherwise "+mend,
				"says that the members are %s; %s says %s", strings.Join(b.list, "; "), a.endpoint, strings.Join(a.list, "; "))
		}
	}
}

// full is the finding of the alarm by which etcd refuses to write. It stands once, whichever members tell of it.
const full = "alarm: the database is full, nothing can be written"

func judgeEndpoint(c *Chart, e *endpointFacts) {
	if errors.Is(etcdcall.Kind(e.err), coordinator.ErrPermission) { // the line of the cluster says what to do
		c.add(ok, "etcd", e.endpoint, "", "answers")
		return
	}
	before := len(*c)
	bad := func(mend, text string, args ...any) { c.add(problem, "etcd", e.endpoint, mend, text, args...) }
	switch {
	case e.err != nil && e.found != nil:
		bad(e.found.Do, "%s", e.found.Says)
		return
	case e.err != nil:
		bad("see its log, and the load of its host", "does not answer: %s", brief(e.err))
		return
	}
	s := e.status
	if err := diagnose.CheckVersion(s.Version); err != nil {
		bad("upgrade etcd", "%s", brief(err))
	}
	if s.Leader == 0 {
		bad("see whether it reaches its peers: its log names them", "knows no leader")
	}
	if s.IsLearner {
		bad("name voting members in --endpoints, or promote it: etcdctl member promote", "is a learner: it cannot serve linearizable reads")
	}
	alarmed := func() bool { return slices.ContainsFunc(*c, func(f Finding) bool { return f.Finding == full }) }
	for _, text := range s.Errors {
		switch {
		case strings.Contains(text, "NOSPACE"):
			// Each member tells the alarms of all, and one row of commands ends them. Defragmenting makes room only
			// after a compaction, which without --physical goes on after its answer.
			if !alarmed() {
				bad("compact, defragment, and disarm, once for all members: "+compact(e)+"; "+disarm(e), "%s", full)
			}
		case strings.Contains(text, "CORRUPT"):
			bad("replace the member: etcdctl member remove, and add it anew with an empty data directory", "alarm: its data are corrupt")
		case !strings.Contains(text, "no leader"):
			bad("see its log", "says: %s", text)
		}
	}
	allowed := s.DbSizeQuota
	switch {
	case allowed > 0:
	case alarmed(): // etcd 3.5 does not tell it, and the database has come up to it
		allowed = s.DbSize
	default:
		allowed = defaultQuota
	}
	if part := float64(s.DbSize) / float64(allowed); part > fullDatabase {
		bad(room(*c, e, allowed, alarmed()), "its database has %s, that is %.0f%% of its quota, %s; %s are in use", bytesOf(s.DbSize), part*100, bytesOf(allowed), bytesOf(s.DbSizeInUse))
	}
	if len(*c) == before {
		c.add(ok, "etcd", e.endpoint, "", "version %s, round trip %v, database %s of %s", s.Version, rounded(e.took), bytesOf(s.DbSize), bytesOf(allowed))
	}
}

// room is what to do about a database that is nearly full or, if alarmed, full. Defragmenting frees what is not in use. What is
// in use are keys and old revisions, and etcd does not say how much of it each is: only after a compaction it is keys alone.
// Then another compaction changes nothing, and the alarm comes again.
func room(c Chart, e *endpointFacts, allowed int64, alarmed bool) string {
	inUse := e.status.DbSizeInUse
	if float64(inUse) <= fullDatabase*float64(allowed) {
		if alarmed {
			return "the commands that end the alarm make room"
		}
		return "compact and defragment: etcdctl defrag --endpoints=" + e.endpoint + "; or raise --quota-backend-bytes"
	}
	const raise = "--quota-backend-bytes="
	if i := slices.IndexFunc(c, func(f Finding) bool { return strings.Contains(f.Mend, raise) }); i >= 0 {
		return "as for " + c[i].Subject // what is done there is done for all members
	}
	first, last := "compact and defragment: "+compact(e), ""
	if alarmed {
		first, last = "run the commands that end the alarm", ", then run "+disarm(e)
	}
	return first + fmt.Sprintf(". If as much is in use after that, keys fill it, not old revisions: start the members again, one after the other, with %s%d%s; "+
		"or delete keys that nobody needs before you run these commands again: etcdctl get --prefix --keys-only --endpoints=%s '' | cut -d/ -f1-4 | sort | uniq -c | sort -n counts keys by prefix",
		raise, 2*max(allowed, inUse), last, e.endpoint)
}

// compact returns the commands that free the room of old revisions, of all members.
func compact(e *endpointFacts) string {
	return fmt.Sprintf("etcdctl compact --physical %d --endpoints=%[2]s; etcdctl defrag --cluster --endpoints=%[2]s", e.status.Header.Revision, e.endpoint)
}

// disarm returns the command that ends the alarm of a full database.
func disarm(e *endpointFacts) string { return "etcdctl alarm disarm --endpoints=" + e.endpoint }

func bytesOf(n int64) string { return humanize.IBytes(uint64(n)) }

// rounded shows three digits or so.
func rounded(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(10 * time.Microsecond)
}
