package coordinator

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// TestTheStepIsPure: a step has no clock, lock, goroutine or client.
func TestTheStepIsPure(t *testing.T) {
	for _, file := range []string{"step.go", "line.go", "member.go"} {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range tree.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil || strings.Contains(path, "etcd") || path == "sync" || path == "sync/atomic" || path == "context" || path == "os" {
				t.Errorf("%s imports %s, %v", file, path, err)
			}
		}
	}
}

// steps drives a state machine at instants that it invents, a second apart, and notes what
// that decides.
type steps struct {
	machine
	now int64
	log []string
}

// noted is a sink that notes its calls.
type noted struct {
	feed.Sink
	steps    *steps
	provider string
}

func (n noted) note(format string, args ...any) {
	n.steps.log = append(n.steps.log, n.provider+" "+fmt.Sprintf(format, args...))
}

func (n noted) Reset(at clock.Instant, self string, v protocol.View) {
	n.note("reset %d at %d as %s of %d", v.Revision, at.Mono/1e9, self, len(v.Instances))
}

func (n noted) Apply(_ clock.Instant, c protocol.Change) { n.note("apply %d", c.Revision) }
func (n noted) Prove(sent clock.Instant)                 { n.note("prove %d", sent.Mono/1e9) }
func (n noted) Announce(until int64)                     { n.note("announce") }
func (n noted) Close()                                   { n.note("close") }
func (n noted) Restored()                                { n.note("restored") }

func (n noted) Trouble(err error) {
	if err == nil {
		n.note("no trouble")
		return
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "coordinator: "), ":")
	n.note("trouble %.40s", text)
}

func (s *steps) at() instant {
	s.now++
	return instant{clock.Instant{Mono: s.now * 1e9, Wall: s.now * 1e9}, s.now * 1e9}
}

func (s *steps) do(e event) {
	for _, x := range s.step(e, s.at()) {
		switch x := x.(type) {
		case call:
			x()
		case write:
			if x.level > slog.LevelInfo && x.text != "provider has a problem" { // its sink is told, too
				s.log = append(s.log, fmt.Sprint("warn ", x.text))
			}
		case follow:
			s.log = append(s.log, "follow "+x.folder)
		case forget:
			s.log = append(s.log, "forget "+x.folder)
		default:
			s.log = append(s.log, strings.TrimPrefix(strings.Fields(fmt.Sprintf("%T", x))[0], "coordinator."))
		}
	}
}

// newSteps returns a machine whose watch has begun at revision 10 of cluster 1.
func newSteps() *steps {
	s := &steps{machine: newMachine("/")}
	s.do(opened{})
	s.do(watched{s.whole()})
	s.tell("", 0, nil)
	s.do(leased{&lease{id: 7}})
	return s
}

func (s *steps) whole() *line { return s.lines["/"] }

// tell tells of a created watch, or of keys of a provider up to a revision.
func (s *steps) tell(provider string, revision int64, keys []view.Key) {
	e := watchAnswer{line: s.whole(), created: provider == "", revision: 10, cluster: 1, newest: revision}
	if p := s.memberships[provider]; p != nil {
		e.about, e.events = []*membership{p}, map[*membership][]view.Key{p: keys}
	}
	s.do(e)
}

// begins has the watch of a folder begin at a revision.
func (s *steps) begins(folder string, revision int64) {
	s.do(watched{s.lines[folder]})
	s.do(watchAnswer{line: s.lines[folder], created: true, revision: revision, cluster: 1})
}

func instanceKey(id string, revision int64) view.Key {
	return view.Key{Kind: view.Instance, ID: id, Value: []byte(`{"schema":1,"name":"a"}`), Revision: revision}
}

func policyKey(revision int64) view.Key {
	return view.Key{Kind: view.Policy, Value: []byte(`{"schema":1,"limits":[{"permits":10,"window":"1s"}]}`), Revision: revision}
}

func (s *steps) subscribe(provider string) *membership {
	p := &membership{member: member{m: &s.machine, provider: provider, folder: "/" + provider + "/", sink: noted{steps: s, provider: provider}}}
	s.do(subscribed{p})
	return p
}

// register has the next batch registered, and listed, at a revision of a cluster.
func (s *steps) register(revision int64, cluster uint64) {
	batch, _ := s.nextBatch(true)
	for _, j := range batch {
		if j.fresh {
			j.m.incarnation = incarnation{id: fmt.Sprint(j.p.provider, revision), key: "key", lease: 7, created: revision}
		}
		j.m.revision, j.m.cluster, j.all = revision, cluster, []view.Key{instanceKey(j.m.id, j.m.created)}
		s.do(joined{j})
	}
}

// joins subscribes to a provider, whose instance registers at a revision.
func (s *steps) joins(provider string, revision int64) *membership {
	p := s.subscribe(provider)
	s.register(revision, 1)
	s.tell(provider, revision, []view.Key{instanceKey(p.id, revision)})
	return p
}

// probe asks at the next instant, and is answered at a revision of a cluster with the mark as
// it was created then.
func (s *steps) probe(revision int64, cluster uint64, created int64) {
	s.do(answered{s.question(s.at().Instant), revision, cluster, created})
}

// TestStep has what a session decides. p has joined at revision 20, and q at 30.
func TestStep(t *testing.T) {
	for what, c := range map[string]struct {
		happens func(s *steps, p, q *membership)
		want    string
	}{
		"the store goes back to what came after the listing": {func(s *steps, p, q *membership) {
			s.tell("p", 50, []view.Key{policyKey(31)})
			s.probe(50, 1, 30)
			s.probe(45, 1, 30)
			s.begins("/", 45)
			s.register(45, 1)
			s.log = append(s.log, fmt.Sprint(p.elsewhere/1e9, q.elsewhere/1e9)) // q had no policy
		}, "p apply 31, p prove 12, q prove 12, warn starting over: no share for the settle time, unwatch, wake, " +
			"p restored, p reset 45 at 18 as p20 of 1, q restored, q reset 45 at 19 as q30 of 1, 13 0"},
		"a probe is answered": {func(s *steps, p, q *membership) { s.probe(30, 1, 30) },
			"p prove 11, q prove 11"},
		"a probe is answered before the watch has told": {func(s *steps, p, q *membership) {
			s.probe(31, 1, 30)
			s.tell("p", 31, []view.Key{policyKey(31)})
		}, "askProgress, p apply 31, p prove 11, q prove 11"},
		"a probe is late": {func(s *steps, p, q *membership) { s.do(lateProbe{s.question(s.at().Instant)}) },
			"askProgress"},
		"probes of before a listing prove nothing": {func(s *steps, p, q *membership) {
			before := s.question(s.at().Instant)
			s.do(watchAnswer{line: s.whole(), cluster: 2})
			s.do(watched{s.whole()})
			s.tell("", 0, nil)
			s.register(35, 1)
			s.do(answered{before, 30, 1, 30})
		}, "warn starting over: no share for the settle time, unwatch, wake, p reset 35 at 15 as p20 of 1, q reset 35 at 16 as q30 of 1"},
		"a probe fails": {func(s *steps, p, q *membership) {
			s.probe(30, 1, 30)
			s.do(unanswered{errors.New("away")})
			s.do(unanswered{errors.New("away")})
			s.do(unanswered{errors.New("away")})
			s.probe(30, 1, 30)
		}, "p prove 11, q prove 11, warn the watch of etcd failed, p trouble away, q trouble away, p no trouble, q no trouble, p prove 16, q prove 16"},
		"another cluster answers a probe": {func(s *steps, p, q *membership) { s.probe(30, 2, 30) },
			"warn starting over: no share for the settle time, unwatch"},
		"an earlier revision answers a probe": {func(s *steps, p, q *membership) { s.probe(29, 1, 30) },
			"warn starting over: no share for the settle time, unwatch"},
		"the mark is missing": {func(s *steps, p, q *membership) { s.probe(30, 1, 0) },
			"warn starting over: no share for the settle time, unwatch"},
		"the mark is another's": {func(s *steps, p, q *membership) { s.probe(30, 1, 29) },
			"warn starting over: no share for the settle time, unwatch"},
		"the mark is missing, and the watch may be about to tell": {func(s *steps, p, q *membership) { s.probe(31, 1, 0) },
			"askProgress"},
		"the mark is missing, and the watch has told": {func(s *steps, p, q *membership) {
			asked := s.question(s.at().Instant)
			s.tell("q", 31, []view.Key{{Kind: view.Instance, ID: q.id, Revision: 31, Deleted: true}})
			s.do(answered{asked, 31, 1, 0})
			s.register(32, 1)
		}, "q apply 31, q trouble this instance's key is gone from etcd; i, wake, q reset 32 at 14 as q32 of 1, q no trouble"},
		"another cluster's watch tells": {func(s *steps, p, q *membership) {
			s.do(watchAnswer{line: s.whole(), cluster: 2, about: []*membership{p}, events: map[*membership][]view.Key{p: {policyKey(31)}}})
		}, "warn starting over: no share for the settle time, unwatch"},
		"a watch that has ended tells": {func(s *steps, p, q *membership) {
			s.do(ended{line: s.whole()})
			s.tell("p", 31, []view.Key{policyKey(31)})
		}, ""},
		"a watch is opened again where it left off": {func(s *steps, p, q *membership) {
			s.do(ended{line: s.whole(), err: errors.New("broken")})
			s.log = append(s.log, fmt.Sprint("from ", s.whole().from()))
			s.do(watched{s.whole()})
			s.tell("", 0, nil)
			s.tell("p", 31, []view.Key{policyKey(31)})
		}, "warn the watch of etcd failed, p trouble broken, q trouble broken, from 31, p apply 31"},
		"a watch has a gap": {func(s *steps, p, q *membership) {
			s.do(ended{line: s.whole(), err: errors.New("compacted"), gap: true})
			s.log = append(s.log, fmt.Sprint("from ", s.whole().from()))
		}, "warn starting over: no share for the settle time, from 0"},
		"a watch lags": {func(s *steps, p, q *membership) {
			for range 3 {
				s.probe(40, 1, 30)
			}
		}, "askProgress, warn the watch fell behind; reopening it, unwatch"},
		"the account may read some providers only": {func(s *steps, p, q *membership) {
			s.do(ended{line: s.whole(), err: ErrPermission})
			s.begins("/p/", 50)
			s.begins("/q/", 50)
			s.probe(50, 1, 0) // what happened from 31 to 50 is in no watch
			s.register(50, 1)
			s.probe(50, 1, 30)
		}, "forget /, follow /p/, follow /q/, wake, wake, p reset 50 at 18 as p20 of 1, q reset 50 at 19 as q30 of 1, p prove 20, q prove 20"},
		"the account may read some providers only, and one is listed meanwhile": {func(s *steps, p, q *membership) {
			r := s.subscribe("r")
			batch, _ := s.nextBatch(false)
			batch[0].m = listing{incarnation: incarnation{id: "r40", key: "key", lease: 7, created: 40}, revision: 40, cluster: 1}
			s.do(ended{line: s.whole(), err: ErrPermission})
			s.begins("/r/", 50) // what happened from 41 to 50 is in no watch
			s.do(joined{batch[0]})
			s.log = append(s.log, fmt.Sprint(r.stage == toList))
		}, "wake, forget /, follow /p/, follow /q/, follow /r/, wake, true"},
		"an answer comes to a line that is forgotten": {func(s *steps, p, q *membership) {
			before := s.question(s.at().Instant)
			s.do(ended{line: s.whole(), err: ErrPermission})
			s.begins("/p/", 50)
			s.begins("/q/", 50)
			s.register(50, 1)
			s.log = nil
			s.do(answered{before, 29, 1, 30})
			s.log = append(s.log, fmt.Sprint(p.stage == following, q.stage == following))
		}, "true true"},
		"the account may read some providers only, of more than may have a line": {func(s *steps, p, q *membership) {
			for i := range mostFolders {
				s.joins(fmt.Sprint("r", i), int64(40+i))
			}
			z := s.subscribe("z")
			batch, _ := s.nextBatch(false)
			batch[0].m = listing{incarnation: incarnation{id: "z70", key: "key", lease: 7, created: 70}, revision: 70, cluster: 1}
			s.do(ended{line: s.whole(), err: ErrPermission})
			s.log = nil
			s.do(joined{batch[0]})
			s.log = append(s.log, fmt.Sprint(z.line == nil, z.stage == toList))
		}, "true true"},
		"a provider's last user goes, and it has a line of its own": {func(s *steps, p, q *membership) {
			s.do(ended{line: s.whole(), err: ErrPermission})
			s.do(unsubscribed{p})
		}, "forget /, follow /p/, follow /q/, forget /p/"},
		"the lease is lost": {func(s *steps, p, q *membership) { s.do(leased{}) },
			"wake, p trouble this instance's lease has ended in etcd;, wake, q trouble this instance's lease has ended in etcd;, wake"},
		"the lease is lost after an end was announced": {func(s *steps, p, q *membership) {
			s.tell("p", 31, []view.Key{policyKey(31)})
			s.do(ending{p})
			s.do(closing{q})
			s.do(leased{})
		}, "p apply 31, p announce, q close, wake, p close, wake"},
		"a session's problem comes and goes": {func(s *steps, p, q *membership) {
			s.do(problem{"etcd", errors.New("old")})
			s.do(problem{"etcd", errors.New("old")})
			s.subscribe("r")
			s.do(problem{"etcd", nil})
		}, "warn all providers have a problem, p trouble old, q trouble old, r trouble old, wake, p no trouble, q no trouble, r no trouble"},
		"events come while a provider is listed": {func(s *steps, p, q *membership) {
			r := s.subscribe("r")
			batch, _ := s.nextBatch(false)
			s.tell("r", 38, []view.Key{policyKey(38)})
			s.tell("r", 41, []view.Key{instanceKey("r40", 40), policyKey(41)})
			s.tell("r", 42, []view.Key{policyKey(42)})
			batch[0].m = listing{incarnation: incarnation{id: "r40", key: "key", lease: 7, created: 40}, revision: 40, cluster: 1}
			batch[0].all = []view.Key{policyKey(38), instanceKey("r40", 40)}
			s.do(joined{batch[0]})
			s.tell("r", 43, []view.Key{policyKey(42), policyKey(43)})
			s.log = append(s.log, fmt.Sprint(r.policyAt))
		}, "wake, r reset 40 at 15 as r40 of 1, r apply 41, r apply 42, r apply 43, 43"},
		"a key is listed that the watch does not tell of": {func(s *steps, p, q *membership) {
			s.subscribe("r")
			s.register(40, 1)
			s.tell("p", 41, []view.Key{policyKey(41)})
			s.probe(41, 1, 40)
		}, "wake, r reset 40 at 12 as r40 of 1, p apply 41, warn starting over: no share for the settle time, unwatch"},
		"a provider's listing takes long, whose key the watch has not told of": {func(s *steps, p, q *membership) {
			r := s.subscribe("r")
			s.register(40, 1)
			s.do(watchAnswer{line: s.whole(), cluster: 2})
			s.log = nil
			s.begins("/", 45)
			batch, _ := s.nextBatch(true)
			for _, j := range batch {
				if j.m.revision, j.m.cluster, j.all = 45, 1, []view.Key{instanceKey(j.m.id, j.m.created)}; j.p != r {
					s.do(joined{j})
				}
			}
			s.probe(45, 1, 30)
		}, "wake, p reset 45 at 16 as p20 of 1, q reset 45 at 17 as q30 of 1, p prove 18, q prove 18"},
		"a key goes that the watch has not told of": {func(s *steps, p, q *membership) {
			r := s.subscribe("r")
			s.register(40, 1)
			s.log = nil
			s.tell("r", 41, []view.Key{{Kind: view.Instance, ID: r.id, Revision: 41, Deleted: true}})
			s.probe(41, 1, 30)
		}, "r apply 41, r trouble this instance's key is gone from etcd; i, wake, p prove 14, q prove 14"},
		"a provider has too many keys": {func(s *steps, p, q *membership) {
			var many []view.Key
			for i := range protocol.MaxInstances {
				many = append(many, instanceKey(fmt.Sprint("x", i), 50))
			}
			s.tell("p", 50, many)
			s.register(51, 1)
		}, fmt.Sprintf("p apply 50, p trouble there are more than %d keys, wake, p reset 51 at 12 as p20 of 1, p no trouble", protocol.MaxInstances)},
		"a provider is listed in another cluster": {func(s *steps, p, q *membership) {
			s.subscribe("r")
			s.register(40, 2)
		}, "wake, warn starting over: no share for the settle time, unwatch"},
		"a provider is listed at an earlier revision": {func(s *steps, p, q *membership) {
			s.subscribe("r")
			s.register(29, 1)
		}, "wake, warn starting over: no share for the settle time, unwatch"},
		"a gap is found while a provider is listed": {func(s *steps, p, q *membership) {
			r := s.subscribe("r")
			batch, _ := s.nextBatch(false)
			batch[0].m = listing{incarnation: incarnation{id: "r40", key: "key", lease: 7, created: 40}, revision: 40, cluster: 1}
			s.probe(29, 1, 30)
			s.do(joined{batch[0]})
			s.log = append(s.log, fmt.Sprint(r.stage == toList))
		}, "wake, warn starting over: no share for the settle time, unwatch, true"},
		"the lease is lost while a provider is listed": {func(s *steps, p, q *membership) {
			s.do(closing{p})
			s.do(closing{q})
			s.subscribe("r")
			batch, _ := s.nextBatch(false)
			batch[0].m = listing{incarnation: incarnation{id: "r40", key: "key", lease: 7, created: 40}, revision: 40, cluster: 1}
			s.do(leased{&lease{id: 8}})
			s.do(joined{batch[0]})
		}, "p close, q close, wake, wake, r trouble this instance's lease has ended in etcd;, wake"},
		"a listing fails": {func(s *steps, p, q *membership) {
			s.subscribe("r")
			batch, _ := s.nextBatch(false)
			batch[0].err = errors.New("away")
			s.do(joined{batch[0]})
			batch, failing := s.nextBatch(false)
			s.log = append(s.log, fmt.Sprint(len(batch), failing))
			s.register(40, 1)
		}, "wake, r trouble away, 0 true, r reset 40 at 13 as r40 of 1, r no trouble"},
	} {
		t.Run(what, func(t *testing.T) {
			s := newSteps()
			p, q := s.joins("p", 20), s.joins("q", 30)
			if len(s.log) == 0 || p.stage != following || q.stage != following {
				t.Fatalf("it has not begun: %q", s.log)
			}
			s.log = nil
			c.happens(s, p, q)
			if got := strings.Join(s.log, ", "); got != c.want {
				t.Errorf("it decides\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestTheFirstOfAFleet: a process is the first only where nobody else is there, it has not
// been there, and its line has had no gap.
func TestTheFirstOfAFleet(t *testing.T) {
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 1, Window: time.Second}}}.WithDefaults()
	for what, c := range map[string]struct {
		others int64
		policy *quota.Policy
		before func(s *steps, p *membership)
		first  bool
	}{
		"alone":            {0, &policy, func(*steps, *membership) {}, true},
		"beside another":   {1, &policy, func(*steps, *membership) {}, false},
		"without a policy": {0, nil, func(*steps, *membership) {}, false},
		"it has been there": {0, &policy, func(s *steps, p *membership) {
			s.register(20, 1)
			s.tell("p", 21, []view.Key{{Kind: view.Instance, ID: p.id, Revision: 21, Deleted: true}})
		}, false},
		"it missed a change": {0, &policy, func(s *steps, p *membership) {
			s.do(watchAnswer{line: s.whole(), cluster: 2})
			s.do(watched{s.whole()})
			s.tell("", 0, nil)
		}, false},
		"its role was narrowed": {0, &policy, func(s *steps, _ *membership) {
			s.do(ended{line: s.whole(), err: ErrPermission})
			s.begins("/p/", 10)
		}, false},
	} {
		s := newSteps()
		p := s.subscribe("p")
		c.before(s, p)
		batch, _ := s.nextBatch(true)
		s.do(admitted{batch[0], c.others, c.policy})
		if v := batch[0].m.value; v.First != c.first || v.From.IsZero() != (c.first || c.policy == nil) {
			t.Errorf("%s: %+v", what, v)
		}
	}
}

// TestNoEndBeforeItTakesPart: a newcomer's end is no earlier than its beginning.
func TestNoEndBeforeItTakesPart(t *testing.T) {
	p := &member{}
	p.value.From = time.Unix(7, 0)
	for at, want := range map[int64]int64{6: 7, 8: 8} {
		if end := p.endAt(time.Unix(at, 0)); !end.Equal(time.Unix(want, 0)) {
			t.Errorf("an end at %d became %v, want %d", at, end, want)
		}
	}
}
