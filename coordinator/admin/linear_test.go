package admin

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/quota"
)

var linearSeed = flag.Uint64("linear", 0, "the seed of the history that TestOperatorsAreLinearizable plays; 0: several new ones")

// operatedOn are the providers that operators change.
var operatedOn = [2]string{"linear/p", "linear/q"}

// cell is a policy as operators see it: the reason tells every write from all others.
type cell struct {
	tag     string
	permits int64
}

// policies is the state of the model: of each provider the policy, and the one before.
type policies [2]struct{ now, before cell }

// operation is what an operator did. Read ones saw a policy; others wrote.
type operation struct {
	what  string
	on    []int   // providers
	write []cell  // by provider in on; nil: it read
	seen  []cell  // what it was based on, or has read; nil: whatever was there
	back  bool    // it wrote what was there before
	have  int64   // the revision that it found instead, if it was refused
	end   outcome // of a write
}

type outcome int

const (
	made outcome = iota
	refused
	unknown // the answer was lost: it may have been made, at any time since
)

// step is the model: it reports whether the operation can be the next in the state, and
// the state after it. known are the revisions that anybody has told, by provider.
func (o *operation) step(s policies, known [2]map[int64]string) (bool, policies) {
	based := true
	for i, p := range o.on {
		based = based && (o.seen == nil || s[p].now == o.seen[i])
	}
	switch {
	case o.write == nil:
		return based, s
	case o.end == refused: // by the first in on that differs
		p := o.on[0]
		tag, told := known[p][o.have]
		return (!told || s[p].now.tag == tag) && (o.seen == nil || s[p].now != o.seen[0]), s
	case o.end == made && !based:
		return false, s
	case !based:
		return true, s
	}
	for i, p := range o.on {
		next := o.write[i]
		if o.back {
			if next.permits = s[p].before.permits; o.end == made && next != o.write[i] {
				return false, s
			}
		}
		s[p].now, s[p].before = next, s[p].now
	}
	return true, s
}

// operators are what some operators do at once, and what came of it.
type operators struct {
	*testing.T
	seed uint64
	lose func() (before, after bool) // a transaction is lost on its way there, or its answer is

	mu    sync.Mutex
	ops   []porcupine.Operation
	known [2]map[int64]string
}

// intercept loses transactions that write: etcd's client sees what a broken connection
// looks like.
func (o *operators) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	txn, ok := req.(*etcdserverpb.TxnRequest)
	if !ok || len(txn.Compare) == 0 {
		return call(ctx, method, req, reply, cc, opts...)
	}
	before, after := o.lose()
	if before {
		return status.Error(codes.Unavailable, "lost on its way")
	}
	if err := call(ctx, method, req, reply, cc, opts...); err != nil || !after {
		return err
	}
	return status.Error(codes.Unavailable, "the answer is lost")
}

func (o *operators) now() int64 { return time.Since(begun).Nanoseconds() }

var begun = time.Now()

// note takes an operation into the history. Revisions are told where they are known.
func (o *operators) note(client int, began int64, op *operation, revision int64, err error) {
	o.Helper()
	var conflict *ConflictError
	ended := o.now()
	switch {
	case err == nil:
	case errors.As(err, &conflict):
		op.end, op.have = refused, conflict.Have
		if conflict.Provider == operatedOn[1] && len(op.on) > 1 { // the second differed
			op.on, op.write = op.on[1:], op.write[1:]
			if op.seen != nil {
				op.seen = op.seen[1:]
			}
		}
	case strings.Contains(err.Error(), "the change may have been made"):
		op.end, ended = unknown, math.MaxInt64
	default:
		o.Errorf("%s: %v", op.what, err)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, p := range op.on {
		if tags := op.write; err == nil {
			if tags == nil {
				tags = op.seen
			}
			if was, ok := o.known[p][revision]; ok && was != tags[i].tag {
				o.Errorf("revision %d of %s is of %s and of %s", revision, operatedOn[p], was, tags[i].tag)
			}
			o.known[p][revision] = tags[i].tag
		}
	}
	o.ops = append(o.ops, porcupine.Operation{ClientId: client, Input: op, Call: began, Return: ended})
}

func cellOf(s *Stored) cell { return cell{s.Policy.Reason, s.Policy.Limits[0].Permits} }

func linearPolicy(h cell) *quota.Policy {
	return &quota.Policy{Limits: []quota.Limit{{Permits: h.permits, Window: time.Second}}, Reason: h.tag,
		Next: []quota.LimitChange{{From: time.Unix(4e9, 0).UTC(), Limits: []quota.Limit{{Permits: h.permits + 1, Window: time.Second}}}}}
}

// operate has one operator do some things, as the commands of quota-admin do them.
func (o *operators) operate(ctx context.Context, client int, admin *Client, r *rand.Rand, n int) {
	for k := range n {
		p := r.IntN(2)
		tag := cell{fmt.Sprintf("%d-%d", client, k), 1 + r.Int64N(1000)}
		began := o.now()
		switch r.IntN(6) {
		case 0: // get
			s, err := admin.Get(ctx, operatedOn[p])
			o.note(client, began, &operation{what: "get", on: []int{p}, seen: []cell{cellOf(&s)}}, s.Revision, err)
		case 1: // set
			s, err := admin.Put(ctx, operatedOn[p], *linearPolicy(tag))
			o.note(client, began, &operation{what: "set", on: []int{p}, write: []cell{tag}}, s.Revision, err)
		case 2: // set --revision
			s, err := admin.Get(ctx, operatedOn[p])
			if err != nil {
				o.Error(err)
				return
			}
			began = o.now()
			op := &operation{what: "set --revision", on: []int{p}, write: []cell{tag}, seen: []cell{cellOf(&s)}}
			s, err = admin.PutIf(ctx, operatedOn[p], *linearPolicy(tag), s.Revision)
			o.note(client, began, op, s.Revision, err)
		case 3: // apply
			op := &operation{what: "apply", on: []int{0, 1}, write: []cell{tag, {tag.tag, tag.permits + 1}}}
			all, err := admin.Update(ctx, operatedOn[:], func(old []Stored) ([]*quota.Policy, error) {
				op.seen = []cell{cellOf(&old[0]), cellOf(&old[1])}
				return []*quota.Policy{linearPolicy(op.write[0]), linearPolicy(op.write[1])}, nil
			})
			o.note(client, began, op, append(all, Stored{})[0].Revision, err)
		case 4: // cancel
			op := &operation{what: "cancel", on: []int{p}}
			all, err := admin.Update(ctx, operatedOn[p:p+1], func(old []Stored) ([]*quota.Policy, error) {
				next := old[0].Policy
				next.Next, next.Reason = nil, tag.tag
				op.seen, op.write = []cell{cellOf(&old[0])}, []cell{{tag.tag, next.Limits[0].Permits}}
				return []*quota.Policy{&next}, nil
			})
			o.note(client, began, op, append(all, Stored{})[0].Revision, err)
		case 5: // rollback
			records, err := admin.History(ctx, operatedOn[p])
			if err != nil {
				o.Error(err)
				return
			}
			last := records[0]
			if last.Old == nil {
				continue
			}
			next := *last.Old
			next.Reason = tag.tag
			op := &operation{what: "rollback", on: []int{p}, back: true, write: []cell{{tag.tag, next.Limits[0].Permits}},
				seen: []cell{{last.New.Reason, last.New.Limits[0].Permits}}}
			s, err := admin.PutIf(ctx, operatedOn[p], next, last.Revision)
			o.note(client, began, op, s.Revision, err)
		}
	}
}

// Operators who change policies at once, over connections that lose transactions and their
// answers, see one line of changes: porcupine finds an order in which each took effect at one
// instant between its call and its return, and one whose answer was lost at any later one,
// or never.
func TestOperatorsAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("checks histories for seconds")
	}
	t.Parallel()
	first, histories := uint64(time.Now().UnixNano()), uint64(12)
	if *linearSeed > 0 {
		first, histories = *linearSeed, 1
	}
	count := map[string]int{}
	for seed := first; seed < first+histories && !t.Failed(); seed++ {
		o := &operators{T: t, seed: seed, known: [2]map[int64]string{{}, {}}}
		o.play(count)
	}
	t.Logf("%v", count)
	if *linearSeed == 0 && min(count["made"], count["refused"], count["unknown"]) < 20 {
		t.Error("the histories have too few of some outcome")
	}
}

func (o *operators) play(count map[string]int) {
	f := setup(o.T)
	var faults sync.Mutex
	r := rand.New(rand.NewPCG(o.seed, 1))
	o.lose = func() (bool, bool) { return false, false }
	client, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints(), DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(o.intercept)}})
	if err != nil {
		o.Fatal(err)
	}
	defer client.Close()
	admin, err := New(client, Options{Prefix: f.prefix, Timeout: time.Minute})
	if err != nil {
		o.Fatal(err)
	}
	var initial policies
	for i, p := range operatedOn {
		initial[i].now = cell{"first", int64(10 + i)}
		s, err := admin.PutIf(o.Context(), p, *linearPolicy(initial[i].now), 0)
		if err != nil {
			o.Fatal(err)
		}
		o.known[i][s.Revision] = "first"
	}
	o.lose = func() (before, after bool) {
		faults.Lock()
		defer faults.Unlock()
		return r.IntN(16) == 0, r.IntN(12) == 0
	}
	var busy sync.WaitGroup
	for c := range 4 {
		busy.Go(func() { o.operate(o.Context(), c, admin, rand.New(rand.NewPCG(o.seed, uint64(10+c))), 20) })
	}
	busy.Wait()
	for _, op := range o.ops {
		if in := op.Input.(*operation); in.write != nil {
			count[[]string{"made", "refused", "unknown"}[in.end]]++
		}
	}
	o.check(initial)
}

// check has porcupine judge the history.
func (o *operators) check(initial policies) {
	model := porcupine.Model{
		Init: func() any { return initial },
		Step: func(state, input, _ any) (bool, any) { return input.(*operation).step(state.(policies), o.known) },
		DescribeOperation: func(input, _ any) string {
			op := input.(*operation)
			return fmt.Sprintf("%s of %v: wrote %v on %v, %s", op.what, op.on, op.write, op.seen, []string{"made", "refused", "unknown"}[op.end])
		},
	}
	result, info := porcupine.CheckOperationsVerbose(model, o.ops, 20*time.Second)
	if result == porcupine.Ok {
		return
	}
	text := ""
	if paths := info.PartialLinearizationsOperations(); len(paths) > 0 && len(paths[0]) > 0 {
		for _, op := range paths[0][0] {
			text += "\n" + model.DescribeOperation(op.Input, nil)
		}
	}
	o.Errorf("%v: %d operations have no order; one that goes furthest:%s\nplay it again: go test ./coordinator -run Linearizable -linear %d", result, len(o.ops), text, o.seed)
}
