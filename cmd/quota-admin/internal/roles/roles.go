// Package roles makes the etcd roles and users of those that use Quotient, each
// with the rights that it needs.
package roles

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcderr"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/quota"
)

// Kind says what a role is for.
type Kind string

// The kinds of roles. None of them may more than its kind needs.
const (
	// Consumer is for the instances of one provider's consumer: it reads the
	// provider, and writes instances, the level and reports. Consumers of one
	// provider trust each other.
	Consumer Kind = "consumer"
	// Operator sets policies, of one provider or of all, and looks at fleets.
	Operator Kind = "operator"
	// Reader reads, one provider or all, and writes nothing: not even that it
	// looks.
	Reader Kind = "reader"
)

// Etcd is where roles and users are.
type Etcd struct {
	Client  *clientv3.Client
	Timeout time.Duration // of one call of its methods
}

// Grant is a range of keys that a role may read, or read and write.
type Grant struct {
	Key string
	// End is the first key after the range; empty for the one key.
	End   string
	Write bool
}

// Role is a role in etcd and all that it is granted.
type Role struct {
	Name   string
	Grants []Grant
}

// New returns the role of a kind for a provider, or for all where provider is
// empty: readers and operators only. Nothing is written.
func New(k keys.Layout, kind Kind, provider string) (Role, error) {
	r := Role{Name: "quotient-" + string(kind)}
	if provider != "" {
		if err := quota.ValidateProvider(provider); err != nil {
			return r, err
		}
		r.Name += ":" + provider
	}
	if k.Prefix() != keys.DefaultPrefix {
		r.Name += "@" + k.Prefix()
	}
	under := func(prefix string, write bool) {
		r.Grants = append(r.Grants, Grant{prefix, clientv3.GetPrefixRangeEnd(prefix), write})
	}
	one := func(key string) { r.Grants = append(r.Grants, Grant{Key: key, Write: true}) }
	switch {
	case kind == Consumer && provider == "":
		return r, errors.New("a consumer's role is for one provider: name it")
	case kind == Consumer:
		under(k.Provider(provider), false)
		under(k.Instances(provider), true)
		one(k.Level(provider))
		under(k.Reports(provider), true)
		under(k.Observers(provider), false)
	case kind == Operator && provider == "":
		under(k.Prefix(), false)
		under(k.Providers(), true)
		under(k.Histories(), true)
		under(k.AllSuperseded(), true)
		under(k.AllObservers(), true)
	case kind == Operator:
		under(k.Provider(provider), false)
		one(k.Policy(provider))
		under(k.History(provider), true)
		under(k.Superseded(provider), true)
		under(k.Reports(provider), false)
		under(k.Observers(provider), true)
	case kind == Reader && provider == "":
		under(k.Prefix(), false)
	case kind == Reader:
		under(k.Provider(provider), false)
		under(k.History(provider), false)
		under(k.Reports(provider), false)
		under(k.Observers(provider), false)
	default:
		return r, fmt.Errorf("there is no role %q", kind)
	}
	return r, nil
}

// Put makes etcd have the role with exactly these grants: what it has beside
// them is revoked. It takes etcd's root.
func (e Etcd) Put(ctx context.Context, r Role) error {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	if _, err := e.Client.RoleAdd(ctx, r.Name); err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
		return etcderr.Wrap(ctx, "add role "+r.Name, err)
	}
	has, err := e.Client.RoleGet(ctx, r.Name)
	if err != nil {
		return etcderr.Wrap(ctx, "read role "+r.Name, err)
	}
	for _, p := range has.Perm {
		if !slices.Contains(r.Grants, grantOf(p)) {
			if _, err := e.Client.RoleRevokePermission(ctx, r.Name, string(p.Key), string(p.RangeEnd)); err != nil {
				return etcderr.Wrap(ctx, "revoke from role "+r.Name, err)
			}
		}
	}
	for _, g := range r.Grants {
		kind := clientv3.PermissionType(clientv3.PermRead)
		if g.Write {
			kind = clientv3.PermissionType(clientv3.PermReadWrite)
		}
		if _, err := e.Client.RoleGrantPermission(ctx, r.Name, g.Key, g.End, kind); err != nil {
			return etcderr.Wrap(ctx, "grant to role "+r.Name, err)
		}
	}
	return nil
}

// grantOf returns what a permission allows. One that this package never gives,
// to write only, is like none of its own.
func grantOf(p *authpb.Permission) Grant {
	g := Grant{Key: string(p.Key), End: string(p.RangeEnd), Write: p.PermType != authpb.READ}
	if p.PermType == authpb.WRITE {
		g.Key = ""
	}
	return g
}

// List returns the roles in etcd that are Quotient's by their name, with what
// they are granted now.
func (e Etcd) List(ctx context.Context) ([]Role, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	list, err := e.Client.RoleList(ctx)
	if err != nil {
		return nil, etcderr.Wrap(ctx, "list the roles", err)
	}
	var all []Role
	for _, name := range list.Roles {
		if !strings.HasPrefix(name, "quotient-") {
			continue
		}
		has, err := e.Client.RoleGet(ctx, name)
		if err != nil {
			return nil, etcderr.Wrap(ctx, "read role "+name, err)
		}
		r := Role{Name: name}
		for _, p := range has.Perm {
			r.Grants = append(r.Grants, Grant{string(p.Key), string(p.RangeEnd), p.PermType != authpb.READ})
		}
		all = append(all, r)
	}
	return all, nil
}

// User is an etcd user that is to have a role.
type User struct {
	Name string
	// Password is for a user that is added; with NoPassword the user logs in by a
	// client certificate with this name.
	Password   string
	NoPassword bool
}

// UserExists tells whether etcd knows a user. It takes etcd's root.
func (e Etcd) UserExists(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	_, err := e.Client.UserGet(ctx, name)
	if errors.Is(err, rpctypes.ErrUserNotFound) {
		return false, nil
	}
	return err == nil, etcderr.Wrap(ctx, "look for user "+name, err)
}

// GrantTo gives a user a role, and adds the user first if there is none;
// added tells that. A user who is there keeps the password. It takes etcd's root.
func (e Etcd) GrantTo(ctx context.Context, u User, role string) (added bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	_, err = e.Client.UserAddWithOptions(ctx, u.Name, u.Password, &clientv3.UserAddOptions{NoPassword: u.NoPassword})
	if err != nil && !errors.Is(err, rpctypes.ErrUserAlreadyExist) {
		return false, etcderr.Wrap(ctx, "add user "+u.Name, err)
	}
	added = err == nil
	_, err = e.Client.UserGrantRole(ctx, u.Name, role)
	return added, etcderr.Wrap(ctx, "grant "+role+" to "+u.Name, err)
}

// Authenticated tells whether etcd asks its clients who they are: only then do
// roles count.
func (e Etcd) Authenticated(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	r, err := e.Client.AuthStatus(ctx)
	if err != nil {
		return false, etcderr.Wrap(ctx, "ask for authentication", err)
	}
	return r.Enabled, nil
}
