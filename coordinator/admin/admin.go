package admin

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/buildinfo"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Options are those of a Client. The zero value is ready to use.
type Options struct {
	Prefix  string        // of all keys; default "/quotient/v1/"
	Author  string        // stored with each change; default user@host
	Timeout time.Duration // of one call to etcd, not negative; default 5 s
}

// Client sets providers' policies and reads their fleets. Its methods are safe for
// concurrent use. It keeps no state: every method asks etcd.
//
// Errors of etcd are ErrUnreachable and ErrPermission. A change that ends with
// ErrUnreachable may have been made: read the policy before you try again. A name of a
// provider must be valid by quota.ValidateProvider.
type Client struct {
	inspected
	client *clientv3.Client
	kv     clientv3.KV
	keys   keys.Layout
	o      Options
}

// New returns a Client that uses etcd's client, which the caller closes. It asks no etcd, and
// returns an error only for options that cannot work, and for a client that coordinator.Join
// would refuse.
func New(client *clientv3.Client, o Options) (*Client, error) {
	if err := etcdcall.Usable(client); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	k, err := keys.New(o.Prefix)
	if err != nil {
		return nil, err
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("admin: timeout %v: must not be negative; 0 means %v", o.Timeout, etcdcall.Timeout)
	}
	o.Timeout = cmp.Or(o.Timeout, etcdcall.Timeout)
	o.Author = cmp.Or(o.Author, buildinfo.User())
	a := &Client{client: client, kv: etcdcall.NewKV(client, o.Timeout), keys: k, o: o}
	a.inspected = feed.Over[protocol.Inspector]((*inspector)(a))
	return a, nil
}

// Stored is a policy as stored in etcd.
type Stored struct {
	Provider string
	Policy   quota.Policy
	// Revision is that of the last change; 0 after a Delete.
	Revision int64
	// Problem is the reason why the value cannot be used, or nil. Policy is then zero, or
	// its readable part.
	Problem error
}

// Get returns a provider's policy, or ErrNotFound. A policy that cannot be used is returned
// with a Problem, and without an error.
func (a *Client) Get(ctx context.Context, provider string) (Stored, error) {
	if err := quota.ValidateProvider(provider); err != nil {
		return Stored{}, err
	}
	r, err := a.kv.Txn(ctx).Then(clientv3.OpGet(a.keys.Policy(provider))).Commit()
	if err != nil {
		return Stored{}, classify(ctx, "read the policy of "+provider, err)
	}
	s := stored(provider, etcdcall.KeyIn(r.Responses[0]))
	if s.Revision == 0 {
		return s, fmt.Errorf("%s: %w", provider, ErrNotFound)
	}
	return s, nil
}

// Throttle implements protocol.Inspector.
func (i *inspector) Throttle(ctx context.Context, provider string) (*protocol.Throttle, error) {
	r, err := i.kv.Txn(ctx).Then(clientv3.OpGet(i.keys.Throttle(provider))).Commit()
	if err != nil {
		return nil, classify(ctx, "read the throttle of "+provider, err)
	}
	t, _ := protocol.ReadThrottle(etcdcall.KeyIn(r.Responses[0]).Value)
	return t, nil
}

// Resume ends the pauses that a provider asked for. Its instances issue permits as soon as they
// see it, until the next 429. A pause that an operator set (quota.ModePause) stays. It returns
// false if there was nothing to end.
func (a *Client) Resume(ctx context.Context, provider string) (ended bool, err error) {
	if err := quota.ValidateProvider(provider); err != nil {
		return false, err
	}
	key := a.keys.Throttle(provider)
	r, err := a.kv.Get(ctx, key, clientv3.WithCountOnly())
	if err == nil && r.Count > 0 { // who may not delete it is told so only then
		ended = true
		_, err = a.kv.Delete(ctx, key)
	}
	return ended && err == nil, classify(ctx, "resume "+provider, err)
}

// stored reads a policy's key, which may be empty.
func stored(provider string, kv *mvccpb.KeyValue) Stored {
	return Stored(protocol.ReadStored(provider, kv.Value, kv.ModRevision))
}

// List returns all policies, sorted by provider: also those that cannot be used, which have
// a Problem.
func (a *Client) List(ctx context.Context) ([]Stored, error) {
	var all []Stored
	_, err := a.each(ctx, a.keys.Provider(""), 0, a.keys.AfterMany, func(kv *mvccpb.KeyValue) {
		if provider, ok := a.keys.ProviderOf(string(kv.Key)); ok {
			s := stored(provider, kv)
			if err := quota.ValidateProvider(provider); err != nil {
				s.Problem = fmt.Errorf("no instance can ask for it, its key is %.*q: %w", 2*keys.MaxIncarnationBytes, kv.Key, err)
			}
			all = append(all, s)
		}
	})
	return all, classify(ctx, "list the policies", err)
}
