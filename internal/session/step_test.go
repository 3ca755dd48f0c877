package session

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/session/view"
	"github.com/quotient-limiter/quotient/quota"
)

// TestTheMachineIsPure: it has no clock, lock, goroutine or client.
func TestTheMachineIsPure(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range tree.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil || strings.Contains(path, "etcd") || slices.Contains([]string{"sync", "sync/atomic", "context", "os"}, path) {
				t.Errorf("%s imports %s, %v", file, path, err)
			}
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType:
				t.Errorf("%s has %T", file, n)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "NewTimer", "NewTicker"}, n.Sel.Name) {
					t.Errorf("%s reads the clock: time.%s", file, n.Sel.Name)
				}
			}
			return true
		})
	}
}

// most members of a batch are more than a test has.
const most = 100

// steps drives a machine at instants that it invents, a second apart, and notes what that decides.
type steps struct {
	*Machine
	now int64
	log []string
}

func (s *steps) at() Instant {
	s.now++
	return Instant{clock.Instant{Mono: s.now * 1e9, Wall: s.now * 1e9}, s.now * 1e9}
}

// do has an event happen at the next instant.
func (s *steps) do(e Event) {
	for _, x := range s.Step(e, s.at()) {
		if text := noted(x); text != "" {
			s.log = append(s.log, text)
		}
	}
}

// noted returns what the tests look at of an effect; nothing of a log entry that a sink is told, too.
func noted(x Effect) string {
	switch x := x.(type) {
	case Reset:
		return fmt.Sprintf("%s reset %d at %d as %s of %d", x.Provider, x.View.Revision, x.At.Mono/1e9, x.Self, len(x.View.Instances))
	case Apply:
		return fmt.Sprintf("%s apply %d", x.Provider, x.Change.Revision)
	case Prove:
		return fmt.Sprintf("%s prove %d", x.Provider, x.Sent.Mono/1e9)
	case Announce:
		return x.Provider + " announce"
	case Restored:
		return x.Provider + " restored"
	case Close:
		return x.Provider + " close"
	case Trouble:
		if x.Err == nil {
			return x.Provider + " no trouble"
		}
		text, _, _ := strings.Cut(strings.TrimPrefix(x.Err.Error(), "coordinator: "), ":")
		return fmt.Sprintf("%s trouble %.40s", x.Provider, text)
	case Log:
		if x.Level > slog.LevelInfo && x.Text != "provider has a problem" {
			says := fmt.Sprint(x.Args...)
			if lost := strings.Contains(x.Text, "starting over") || strings.Contains(x.Text, "lease has ended"); (lost || strings.Contains(x.Text, "fell behind")) && !slices.Contains(x.Args, any("do")) {
				return "no do: " + x.Text // which ends all shares, or is the first sign of a slow etcd
			}
			if strings.Contains(says, "restored or replaced") != strings.Contains(says, "quota-admin list") {
				return "what etcd may have lost is not pointed to: " + says
			}
			return "warn " + x.Text
		}
		return ""
	case Follow:
		return "follow " + x.Folder
	case Forget:
		return "forget " + x.Folder
	case Unwatch:
		return "unwatch"
	case AskProgress:
		return "askProgress"
	case Wake:
		return "wake"
	}
	return fmt.Sprintf("unknown %T", x)
}

// newSteps returns a machine whose watch has begun at revision 10 of cluster 1.
func newSteps() *steps {
	s := &steps{Machine: New("/")}
	s.do(Opened{})
	s.do(WatchOpened{s.whole()})
	s.tell("", 0, nil)
	s.do(Leased{Lease: Lease{ID: 7}})
	return s
}

func (s *steps) whole() *Line { return s.lines["/"] }

// tell tells of a created watch, or of keys of a provider up to a revision.
func (s *steps) tell(provider string, revision int64, keys []view.Key) {
	e := WatchAnswer{Line: s.whole(), Created: provider == "", Revision: 10, Cluster: 1, Newest: revision}
	if p := s.members[provider]; p != nil {
		e.Told = []Told{{p, keys}}
	}
	s.do(e)
}

// begins has the watch of a folder begin at a revision.
func (s *steps) begins(folder string, revision int64) {
	s.do(WatchOpened{s.lines[folder]})
	s.do(WatchAnswer{Line: s.lines[folder], Created: true, Revision: revision, Cluster: 1})
}

func instanceKey(id string, revision int64) view.Key {
	return view.Key{Kind: view.Instance, ID: id, Value: []byte(`{"schema":1,"name":"a"}`), Revision: revision}
}

func policyKey(revision int64) view.Key {
	return view.Key{Kind: view.Policy, Value: []byte(`{"schema":1,"limits":[{"permits":10,"window":"1s"}]}`), Revision: revision}
}

func (s *steps) subscribe(provider string) *Member {
	p := NewMember(s.Machine, provider, "/"+provider+"/", nil)
	s.do(Subscribed{p})
	return p
}

// register has the next batch registered, and listed, at a revision of a cluster.
func (s *steps) register(revision int64, cluster uint64) {
	batch, _ := s.NextBatch(most, true)
	for _, j := range batch {
		if j.Fresh {
			j.Incarnation = Incarnation{ID: fmt.Sprint(j.Member.Provider, revision), Key: "key", Lease: 7, Created: revision}
		}
		j.Revision, j.Cluster, j.All = revision, cluster, []view.Key{instanceKey(j.ID, j.Created)}
		s.do(JoinEnded{j})
	}
}

// joins subscribes to a provider, whose instance registers at a revision.
func (s *steps) joins(provider string, revision int64) *Member {
	p := s.subscribe(provider)
	s.register(revision, 1)
	s.tell(provider, revision, []view.Key{instanceKey(p.own.ID, revision)})
	return p
}

// probe asks at the next instant, and is answered at a revision of a cluster with the mark as
// it was created then.
func (s *steps) probe(revision int64, cluster uint64, created int64) {
	s.do(ProbeAnswered{s.Question(s.at().Instant), revision, cluster, created})
}

// TestStep has what a session decides. p has joined at revision 20, and q at 30.
func TestStep(t *testing.T) {
	for what, c := range map[string]struct {
		happens func(s *steps, p, q *Member)
		want    string
	}{
		"the store goes back to what came after the listing": {func(s *steps, p, q *Member) {
			s.tell("p", 50, []view.Key{policyKey(31)})
			s.probe(50, 1, 30)
			s.probe(45, 1, 30)
			s.begins("/", 45)
			s.register(45, 1)
			s.log = append(s.log, fmt.Sprint(p.elsewhere/1e9, q.elsewhere/1e9)) // q had no policy
		}, "p apply 31, p prove 12, q prove 12, warn starting over: no share for the settle time, unwatch, wake, " +
			"p restored, p reset 45 at 18 as p20 of 1, q restored, q reset 45 at 19 as q30 of 1, 13 0"},
		"a probe is answered": {func(s *steps, p, q *Member) { s.probe(30, 1, 30) },
			"p prove 11, q prove 11"},
		"a probe is answered before the watch has told": {func(s *steps, p, q *Member) {
			s.probe(31, 1, 30)
			s.tell("p", 31, []view.Key{policyKey(31)})
		}, "askProgress, p apply 31, p prove 11, q prove 11"},
		"a probe is late": {func(s *steps, p, q *Member) { s.do(ProbeLate{s.Question(s.at().Instant)}) },
			"askProgress"},
		"probes of before a listing prove nothing": {func(s *steps, p, q *Member) {
			before := s.Question(s.at().Instant)
			s.do(WatchAnswer{Line: s.whole(), Cluster: 2})
			s.do(WatchOpened{s.whole()})
			s.tell("", 0, nil)
			s.register(35, 1)
			s.do(ProbeAnswered{before, 30, 1, 30})
		}, "warn starting over: no share for the settle time, unwatch, wake, p reset 35 at 15 as p20 of 1, q reset 35 at 16 as q30 of 1"},
		"a probe fails": {func(s *steps, p, q *Member) {
			s.probe(30, 1, 30)
			s.do(ProbeFailed{errors.New("away")})
			s.do(ProbeFailed{errors.New("away")})
			s.do(ProbeFailed{errors.New("away")})
			s.probe(30, 1, 30)
		}, "p prove 11, q prove 11, warn the watch of etcd failed, p trouble away, q trouble away, p no trouble, q no trouble, p prove 16, q prove 16"},
		"probes fail, and another store is there in place of the one that was followed": {func(s *steps, p, q *Member) {
			s.probe(30, 1, 30)
			s.now += 5
			s.do(ProbeFailed{errors.New("away")})
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("broken")})
			s.do(WatchOpened{s.whole()})
			s.do(WatchAnswer{Line: s.whole(), Cluster: 2})
			s.do(WatchOpened{s.whole()})
			s.do(WatchAnswer{Line: s.whole(), Created: true, Revision: 1, Cluster: 2})
			s.register(2, 2)
		}, "p prove 11, q prove 11, warn the watch of etcd failed, p trouble away, q trouble away, " +
			"warn the watch of etcd failed, p trouble broken, q trouble broken, warn starting over: no share for the settle time, unwatch, " +
			"p no trouble, q no trouble, wake, p restored, p reset 2 at 24 as p20 of 1, q restored, q reset 2 at 25 as q30 of 1"},
		"the watch of a line that was forgotten ends": {func(s *steps, p, q *Member) {
			line := s.whole()
			s.do(WatchEnded{Line: line, Err: errors.New("denied"), Denied: true})
			s.log = nil
			s.do(WatchEnded{Line: line, Err: errors.New("broken")})
			s.do(WatchEnded{Line: line, Err: errors.New("denied"), Denied: true})
		}, ""},
		"another cluster answers a probe": {func(s *steps, p, q *Member) { s.probe(30, 2, 30) },
			"warn starting over: no share for the settle time, unwatch"},
		"an earlier revision answers a probe": {func(s *steps, p, q *Member) { s.probe(29, 1, 30) },
			"warn starting over: no share for the settle time, unwatch"},
		"the mark is missing": {func(s *steps, p, q *Member) { s.probe(30, 1, 0) },
			"warn starting over: no share for the settle time, unwatch"},
		"the mark is another's": {func(s *steps, p, q *Member) { s.probe(30, 1, 29) },
			"warn starting over: no share for the settle time, unwatch"},
		"the mark is missing, and the watch may be about to tell": {func(s *steps, p, q *Member) { s.probe(31, 1, 0) },
			"askProgress"},
		"the mark is missing in a store that is written to": {func(s *steps, p, q *Member) {
			s.probe(31, 1, 0)
			s.do(WatchAnswer{Line: s.whole(), Cluster: 1, Progress: true, Revision: 32}) // of nothing that was deleted
			s.probe(33, 1, 0)
		}, "askProgress, warn starting over: no share for the settle time, unwatch"},
		"the mark is missing, and a newer one is there": {func(s *steps, p, q *Member) {
			s.probe(31, 1, 0)
			s.joins("r", 32)
			asked := s.Question(s.at().Instant)
			s.log = append(s.log, "asks "+asked.Witness.ID)
		}, "askProgress, wake, r reset 32 at 14 as r32 of 1, asks q30"},
		"the mark is missing, and the watch has told": {func(s *steps, p, q *Member) {
			asked := s.Question(s.at().Instant)
			s.tell("q", 31, []view.Key{{Kind: view.Instance, ID: q.own.ID, Revision: 31, Deleted: true}})
			s.do(ProbeAnswered{asked, 31, 1, 0})
			s.register(32, 1)
		}, "q apply 31, q trouble this instance's registration is gone fro, wake, " +
			"warn this instance's key was gone from etcd, and its lease was not; it has registered again, q reset 32 at 14 as q32 of 1, q no trouble"},
		"the mark is missing, and its provider's last user has gone": {func(s *steps, p, q *Member) {
			asked := s.Question(s.at().Instant)
			s.do(Unsubscribed{q})
			s.do(Closing{q})
			s.do(WatchAnswer{Line: s.whole(), Cluster: 1, Newest: 31}) // its key is deleted
			s.do(ProbeAnswered{asked, 31, 1, 0})
		}, "q close"},
		"another cluster's watch tells": {func(s *steps, p, q *Member) {
			s.do(WatchAnswer{Line: s.whole(), Cluster: 2, Told: []Told{{p, []view.Key{policyKey(31)}}}})
		}, "warn starting over: no share for the settle time, unwatch"},
		"a watch that has ended tells": {func(s *steps, p, q *Member) {
			s.do(WatchEnded{Line: s.whole()})
			s.tell("p", 31, []view.Key{policyKey(31)})
		}, ""},
		"a watch is opened again where it left off": {func(s *steps, p, q *Member) {
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("broken")})
			s.log = append(s.log, fmt.Sprint("from ", s.whole().From()))
			s.do(WatchOpened{s.whole()})
			s.tell("", 0, nil)
			s.tell("p", 31, []view.Key{policyKey(31)})
		}, "warn the watch of etcd failed, p trouble broken, q trouble broken, from 31, p apply 31"},
		"a cause is logged once in an outage, and few causes are": {func(s *steps, p, q *Member) {
			fail := func(why string) { s.do(WatchEnded{Line: s.whole(), Err: errors.New(why)}) }
			for range 3 {
				fail("no leader")
				fail("away")
			}
			for i := range 5 {
				fail(fmt.Sprint("odd ", i))
			}
			s.log = slices.DeleteFunc(s.log, func(line string) bool { return !strings.HasPrefix(line, "warn") })
			s.probe(30, 1, 30)
			fail("no leader")
		}, strings.Repeat("warn the watch of etcd failed, ", 4) + "p no trouble, q no trouble, p prove 22, q prove 22, " +
			"warn the watch of etcd failed, p trouble no leader, q trouble no leader"},
		"a watch has a gap": {func(s *steps, p, q *Member) {
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("compacted"), Gap: true})
			s.log = append(s.log, fmt.Sprint("from ", s.whole().From()))
		}, "warn starting over: no share for the settle time, from 0"},
		"a watch lags": {func(s *steps, p, q *Member) {
			for range 3 {
				s.probe(40, 1, 30)
			}
		}, "askProgress, warn the watch fell behind; reopening it, unwatch"},
		"the mark is missing, and the watch lags": {func(s *steps, p, q *Member) {
			for range 3 {
				s.probe(40, 1, 0)
			}
		}, "askProgress, warn the watch fell behind; reopening it, unwatch"},
		"the mark is missing, is there again, and is missing": {func(s *steps, p, q *Member) {
			s.probe(31, 1, 0)
			s.do(WatchAnswer{Line: s.whole(), Cluster: 1, Progress: true, Revision: 32})
			s.probe(32, 1, 30)
			s.log = nil
			s.probe(33, 1, 0)
		}, "askProgress"},
		"connections are made anew": {func(s *steps, p, q *Member) {
			s.do(Reconnected{})
			s.do(Reconnected{}) // no watch is open
			s.log = append(s.log, fmt.Sprint("from ", s.whole().From()))
		}, "unwatch, from 31"},
		"the account may read some providers only": {func(s *steps, p, q *Member) {
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("denied"), Denied: true})
			s.begins("/p/", 50)
			s.begins("/q/", 50)
			s.probe(50, 1, 0) // what happened from 31 to 50 is in no watch
			s.register(50, 1)
			s.probe(50, 1, 30)
		}, "forget /, follow /p/, follow /q/, wake, wake, p reset 50 at 18 as p20 of 1, q reset 50 at 19 as q30 of 1, p prove 20, q prove 20"},
		"the account may read some providers only, in a store that went back": {func(s *steps, p, q *Member) {
			s.tell("q", 50, nil)
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("denied"), Denied: true})
			s.begins("/p/", 40)
			s.begins("/q/", 40)
			s.register(40, 1)
		}, "forget /, follow /p/, follow /q/, wake, wake, p restored, p reset 40 at 17 as p20 of 1, q restored, q reset 40 at 18 as q30 of 1"},
		"the account may read some providers only, and one is listed meanwhile": {func(s *steps, p, q *Member) {
			r := s.subscribe("r")
			batch, _ := s.NextBatch(most, false)
			batch[0].Listing = Listing{Incarnation: Incarnation{ID: "r40", Key: "key", Lease: 7, Created: 40}, Revision: 40, Cluster: 1}
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("denied"), Denied: true})
			s.begins("/r/", 50) // what happened from 41 to 50 is in no watch
			s.do(JoinEnded{batch[0]})
			s.log = append(s.log, fmt.Sprint(r.stage == toList))
		}, "wake, forget /, follow /p/, follow /q/, follow /r/, wake, true"},
		"an answer comes to a line that is forgotten": {func(s *steps, p, q *Member) {
			before := s.Question(s.at().Instant)
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("denied"), Denied: true})
			s.begins("/p/", 50)
			s.begins("/q/", 50)
			s.register(50, 1)
			s.log = nil
			s.do(ProbeAnswered{before, 29, 1, 30})
			s.log = append(s.log, fmt.Sprint(p.stage == following, q.stage == following))
		}, "true true"},
		"the account may read some providers only, of more than may have a line": {func(s *steps, p, q *Member) {
			for i := range MaxLines {
				s.joins(fmt.Sprint("r", i), int64(40+i))
			}
			z := s.subscribe("z")
			batch, _ := s.NextBatch(most, false)
			batch[0].Listing = Listing{Incarnation: Incarnation{ID: "z70", Key: "key", Lease: 7, Created: 70}, Revision: 70, Cluster: 1}
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("denied"), Denied: true})
			s.log = nil
			s.do(JoinEnded{batch[0]})
			s.log = append(s.log, fmt.Sprint(z.line == nil, z.stage == toList))
		}, "true true"},
		"a provider's last user goes, and it has a line of its own": {func(s *steps, p, q *Member) {
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("denied"), Denied: true})
			s.do(Unsubscribed{p})
		}, "forget /, follow /p/, follow /q/, forget /p/"},
		"the lease is lost": {func(s *steps, p, q *Member) { s.do(Leased{}) },
			"warn the lease has ended in etcd; registering again, wake, p trouble this instance's lease has ended in etcd;, wake, q trouble this instance's lease has ended in etcd;, wake"},
		"the lease is lost after an end was announced": {func(s *steps, p, q *Member) {
			s.tell("p", 31, []view.Key{policyKey(31)})
			s.do(Ending{p})
			s.do(Closing{q})
			s.do(Leased{})
		}, "p apply 31, p announce, q close, warn the lease has ended in etcd; registering again, wake, p close, wake"},
		"a session's problem comes and goes": {func(s *steps, p, q *Member) {
			s.do(Problem{"etcd", errors.New("old")})
			s.do(Problem{"etcd", errors.New("old")})
			s.subscribe("r")
			s.do(Problem{"etcd", nil})
		}, "warn all providers have a problem, p trouble old, q trouble old, r trouble old, wake, p no trouble, q no trouble, r no trouble"},
		"events come while a provider is listed": {func(s *steps, p, q *Member) {
			r := s.subscribe("r")
			batch, _ := s.NextBatch(most, false)
			s.tell("r", 38, []view.Key{policyKey(38)})
			s.tell("r", 41, []view.Key{instanceKey("r40", 40), policyKey(41)})
			s.tell("r", 42, []view.Key{policyKey(42)})
			batch[0].Listing = Listing{Incarnation: Incarnation{ID: "r40", Key: "key", Lease: 7, Created: 40}, Revision: 40, Cluster: 1}
			batch[0].All = []view.Key{policyKey(38), instanceKey("r40", 40)}
			s.do(JoinEnded{batch[0]})
			s.tell("r", 43, []view.Key{policyKey(42), policyKey(43)})
			s.log = append(s.log, fmt.Sprint(r.policyAt))
		}, "wake, r reset 40 at 15 as r40 of 1, r apply 41, r apply 42, r apply 43, 43"},
		"a key is listed that the watch does not tell of": {func(s *steps, p, q *Member) {
			s.subscribe("r")
			s.register(40, 1)
			s.tell("p", 41, []view.Key{policyKey(41)})
			s.probe(41, 1, 40)
		}, "wake, r reset 40 at 12 as r40 of 1, p apply 41, warn starting over: no share for the settle time, unwatch"},
		"a provider's listing takes long, whose key the watch has not told of": {func(s *steps, p, q *Member) {
			r := s.subscribe("r")
			s.register(40, 1)
			s.do(WatchAnswer{Line: s.whole(), Cluster: 2})
			s.log = nil
			s.begins("/", 45)
			batch, _ := s.NextBatch(most, true)
			for _, j := range batch {
				if j.Revision, j.Cluster, j.All = 45, 1, []view.Key{instanceKey(j.ID, j.Created)}; j.Member != r {
					s.do(JoinEnded{j})
				}
			}
			s.probe(45, 1, 30)
		}, "wake, p reset 45 at 16 as p20 of 1, q reset 45 at 17 as q30 of 1, p prove 18, q prove 18"},
		"a key goes that the watch has not told of": {func(s *steps, p, q *Member) {
			r := s.subscribe("r")
			s.register(40, 1)
			s.log = nil
			s.tell("r", 41, []view.Key{{Kind: view.Instance, ID: r.own.ID, Revision: 41, Deleted: true}})
			s.probe(41, 1, 30)
		}, "r apply 41, r trouble this instance's registration is gone fro, wake, p prove 14, q prove 14"},
		"a provider has too many keys": {func(s *steps, p, q *Member) {
			var many []view.Key
			for i := range protocol.MaxInstances {
				many = append(many, instanceKey(fmt.Sprint("x", i), 50))
			}
			s.tell("p", 50, many)
			s.register(51, 1)
		}, fmt.Sprintf("p apply 50, p trouble there are more than %d keys, wake, p reset 51 at 12 as p20 of 1, p no trouble", protocol.MaxInstances)},
		"a provider is listed in another cluster": {func(s *steps, p, q *Member) {
			s.subscribe("r")
			s.register(40, 2)
		}, "wake, warn starting over: no share for the settle time, unwatch"},
		"a provider is listed at an earlier revision": {func(s *steps, p, q *Member) {
			s.subscribe("r")
			s.register(29, 1)
		}, "wake, warn starting over: no share for the settle time, unwatch"},
		"a gap is found while a provider is listed": {func(s *steps, p, q *Member) {
			r := s.subscribe("r")
			batch, _ := s.NextBatch(most, false)
			batch[0].Listing = Listing{Incarnation: Incarnation{ID: "r40", Key: "key", Lease: 7, Created: 40}, Revision: 40, Cluster: 1}
			s.probe(29, 1, 30)
			s.do(JoinEnded{batch[0]})
			s.log = append(s.log, fmt.Sprint(r.stage == toList))
		}, "wake, warn starting over: no share for the settle time, unwatch, true"},
		"the lease is lost while a provider is listed": {func(s *steps, p, q *Member) {
			s.do(Closing{p})
			s.do(Closing{q})
			s.subscribe("r")
			batch, _ := s.NextBatch(most, false)
			batch[0].Listing = Listing{Incarnation: Incarnation{ID: "r40", Key: "key", Lease: 7, Created: 40}, Revision: 40, Cluster: 1}
			s.do(Leased{Lease: Lease{ID: 8}})
			s.do(JoinEnded{batch[0]})
		}, "p close, q close, wake, wake, r trouble this instance's lease has ended in etcd;, wake"},
		"a listing fails": {func(s *steps, p, q *Member) {
			s.subscribe("r")
			batch, _ := s.NextBatch(most, false)
			batch[0].Err = errors.New("away")
			s.do(JoinEnded{batch[0]})
			batch, failing := s.NextBatch(most, false)
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
		before func(s *steps, p *Member)
		first  bool
	}{
		"alone":            {0, &policy, func(*steps, *Member) {}, true},
		"beside another":   {1, &policy, func(*steps, *Member) {}, false},
		"without a policy": {0, nil, func(*steps, *Member) {}, false},
		"it has been there": {0, &policy, func(s *steps, p *Member) {
			s.register(20, 1)
			s.tell("p", 21, []view.Key{{Kind: view.Instance, ID: p.own.ID, Revision: 21, Deleted: true}})
		}, false},
		"it missed a change": {0, &policy, func(s *steps, p *Member) {
			s.do(WatchAnswer{Line: s.whole(), Cluster: 2})
			s.do(WatchOpened{s.whole()})
			s.tell("", 0, nil)
		}, false},
		"its role was narrowed": {0, &policy, func(s *steps, _ *Member) {
			s.do(WatchEnded{Line: s.whole(), Err: errors.New("denied"), Denied: true})
			s.begins("/p/", 10)
		}, false},
	} {
		s := newSteps()
		p := s.subscribe("p")
		c.before(s, p)
		batch, _ := s.NextBatch(most, true)
		s.do(Admission{batch[0], c.others, c.policy})
		if v := batch[0].Value; v.First != c.first || v.From.IsZero() != (c.first || c.policy == nil) {
			t.Errorf("%s: %+v", what, v)
		}
	}
}

// TestNoEndBeforeItTakesPart: a newcomer's end is no earlier than its beginning.
func TestNoEndBeforeItTakesPart(t *testing.T) {
	p := &Member{}
	p.own.Value.From = time.Unix(7, 0)
	for at, want := range map[int64]int64{6: 7, 8: 8} {
		if end := p.EndAt(time.Unix(at, 0)); !end.Equal(time.Unix(want, 0)) {
			t.Errorf("an end at %d became %v, want %d", at, end, want)
		}
	}
}

// TestTheBoundOfLines: an account that may read only some providers has a line for each, up to a bound.
// The next provider is told of that and of the way out, and is not registered.
func TestTheBoundOfLines(t *testing.T) {
	s := newSteps()
	s.do(WatchEnded{Line: s.whole(), Err: errors.New("denied"), Denied: true})
	for i := range MaxLines {
		p := s.subscribe(fmt.Sprint("p", i))
		s.begins(p.Folder, 20)
	}
	if batch, _ := s.NextBatch(most, false); len(batch) != MaxLines {
		t.Errorf("%d of %d are registered", len(batch), MaxLines)
	}
	p := NewMember(s.Machine, "p", "/p/", nil)
	var told error
	for _, x := range s.Step(Subscribed{p}, s.at()) {
		if x, ok := x.(Trouble); ok && x.Member == p {
			told = x.Err
		}
	}
	if told == nil || !strings.Contains(told.Error(), "a session can follow 16 of them: let it read all (quota-admin roles), or use a second session") {
		t.Errorf("it is told %v", told)
	}
	if batch, _ := s.NextBatch(most, true); len(batch) > 0 {
		t.Error("it is registered")
	}
}

// A watch of a line may be on the way to be opened when the line is forgotten: its user is gone by then. Nothing is
// decided for the line any more, also not when a probe of before is late or answered.
func TestAForgottenLineStaysForgotten(t *testing.T) {
	s := newSteps()
	s.do(WatchEnded{Line: s.whole(), Err: errors.New("denied"), Denied: true})
	p := s.subscribe("p")
	s.begins(p.Folder, 20)
	asked := s.Question(s.at().Instant)
	asked.Owner = p
	s.do(Unsubscribed{p})
	if want := "forget /p/"; s.log[len(s.log)-1] != want {
		t.Fatalf("%q, want %s last", s.log, want)
	}
	s.log = nil
	s.do(WatchOpened{p.line})
	s.do(ProbeLate{asked})
	s.do(ProbeAnswered{asked, 30, 1, 0})
	s.do(Reconnected{})
	if len(s.log) > 0 || len(asked.lines) == 0 {
		t.Errorf("%q for a line that is forgotten; asked for %d lines", s.log, len(asked.lines))
	}
}
