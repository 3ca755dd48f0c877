package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// AnyRevision lets a change apply to whatever is set. It still fails if
// somebody else changes the policy in the same moment.
const AnyRevision = int64(-1)

// DefaultTimeout bounds one call to etcd.
const DefaultTimeout = 5 * time.Second

// AdminOptions of an Admin. The zero value is ready to use.
type AdminOptions struct {
	Prefix  string        // of all keys; default DefaultPrefix
	Author  string        // stored with each change; default user@host
	Timeout time.Duration // of one call to etcd; default DefaultTimeout
}

// Admin sets providers' policies and looks at their fleets. Its methods are
// safe for concurrent use. It keeps no state: every method asks etcd.
type Admin struct {
	client *clientv3.Client
	keys   keys
	o      AdminOptions
}

// NewAdmin returns an Admin that uses the client, which the caller closes.
func NewAdmin(client *clientv3.Client, o AdminOptions) (*Admin, error) {
	k, err := newKeys(o.Prefix)
	if err != nil {
		return nil, err
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("coordinator: timeout %v: must not be negative; 0 means %v", o.Timeout, DefaultTimeout)
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Author == "" {
		o.Author = author()
	}
	return &Admin{client: client, keys: k, o: o}, nil
}

func author() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

// Stored is a policy as it lies in etcd.
type Stored struct {
	Provider string
	Policy   quota.Policy
	// Revision is that of the last change; 0 after a Delete.
	Revision int64
	// Problem is why the value cannot be used, or nil. Policy is then zero, or
	// what could be read of it.
	Problem error
}

// Get returns a provider's policy, or ErrNotFound.
func (a *Admin) Get(ctx context.Context, provider string) (Stored, error) {
	s, _, _, err := a.read(ctx, provider)
	if err == nil && s.Revision == 0 {
		return s, fmt.Errorf("%s: %w", provider, ErrNotFound)
	}
	return s, err
}

// read returns what is stored, revision 0 if nothing is, with the raw value and
// the store's revision.
func (a *Admin) read(ctx context.Context, provider string) (Stored, []byte, int64, error) {
	if err := quota.ValidateProvider(provider); err != nil {
		return Stored{}, nil, 0, err
	}
	c, cancel := context.WithTimeout(ctx, a.o.Timeout)
	defer cancel()
	r, err := a.client.Get(c, a.keys.policy(provider))
	if err != nil {
		return Stored{}, nil, 0, classify(ctx, "read the policy of "+provider, err)
	}
	if len(r.Kvs) == 0 {
		return Stored{Provider: provider}, nil, r.Header.Revision, nil
	}
	return stored(provider, r.Kvs[0].Value, r.Kvs[0].ModRevision), r.Kvs[0].Value, r.Header.Revision, nil
}

func stored(provider string, value []byte, revision int64) Stored {
	s := Stored{Provider: provider, Revision: revision}
	if s.Problem = json.Unmarshal(value, &s.Policy); s.Problem == nil {
		s.Problem = s.Policy.Validate()
	}
	return s
}

// page is how many keys one read returns at most.
const page = 500

// List returns all policies, sorted by provider.
func (a *Admin) List(ctx context.Context) ([]Stored, error) {
	var all []Stored
	from, end, revision := a.keys.providers(), clientv3.GetPrefixRangeEnd(a.keys.providers()), int64(0)
	for {
		c, cancel := context.WithTimeout(ctx, a.o.Timeout)
		r, err := a.client.Get(c, from, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithRev(revision))
		cancel()
		if err != nil {
			return nil, classify(ctx, "list the policies", err)
		}
		for _, kv := range r.Kvs {
			provider, ok := a.keys.providerOf(string(kv.Key))
			if !ok {
				continue
			}
			s := stored(provider, kv.Value, kv.ModRevision)
			if err := quota.ValidateProvider(provider); err != nil {
				s.Problem = fmt.Errorf("no instance can ask for it, its key is %q: %w", kv.Key, err)
			}
			all = append(all, s)
		}
		if !r.More || len(r.Kvs) == 0 {
			return all, nil
		}
		from, revision = a.keys.afterInstances(string(r.Kvs[len(r.Kvs)-1].Key)), r.Header.Revision
	}
}
