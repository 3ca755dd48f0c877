// Package roles makes the etcd roles and users of those that use Quotient, each
// with the rights that it needs. Changing them takes etcd's root.
package roles

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/quota"
)

// Kind says what a role is for.
type Kind string

// The kinds of roles. None of them may more than its kind needs.
const (
	// Consumer is for the instances of one provider's consumer: it reads the
	// provider, and writes instances, throttle and reports. Consumers of one
	// provider trust each other.
	Consumer Kind = "consumer"
	// Operator sets policies, of one provider or of all, and looks at fleets.
	Operator Kind = "operator"
	// Reader reads, one provider or all, and writes nothing: not even that it
	// looks.
	Reader Kind = "reader"
)

// Grant is a range of keys, and what is permitted there.
type Grant struct {
	Key        string `json:"key"`
	End        string `json:"end,omitempty"` // first key after the range; empty for the one key
	Permission string `json:"permission"`    // read or readwrite
}

// Role is a role in etcd and all that it is granted.
type Role struct {
	Name   string  `json:"role"`
	Grants []Grant `json:"grants"`
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
	grant := func(permission string, prefixes ...string) {
		for _, p := range prefixes {
			r.Grants = append(r.Grants, Grant{p, clientv3.GetPrefixRangeEnd(p), permission})
		}
	}
	one := func(key string) { r.Grants = append(r.Grants, Grant{key, "", readwrite}) }
	switch all := provider == ""; {
	case kind == Consumer && all:
		return r, errors.New("a consumer's role is for one provider: name it")
	case kind == Consumer:
		grant(read, k.Provider(provider))
		grant(readwrite, k.Instances(provider))
		one(k.Throttle(provider))
		grant(readwrite, k.Reports(provider), k.AllLoans(provider), k.AllAsks(provider), k.Issuers(provider), k.Budgets(provider))
		grant(read, k.Observers(provider))
	case all:
		grant(read, k.Prefix())
		if kind == Operator {
			grant(readwrite, k.Provider(""), k.History(""), k.Superseded(""), k.Observers(""), k.Budgets(""))
		}
	case kind == Operator:
		grant(read, k.Provider(provider))
		one(k.Policy(provider))
		one(k.Throttle(provider))
		grant(readwrite, k.AllOverrides(provider), k.History(provider), k.Superseded(provider), k.Budgets(provider))
		grant(read, k.Reports(provider))
		grant(readwrite, k.Observers(provider))
	default:
		grant(read, k.Provider(provider), k.History(provider), k.Reports(provider), k.Observers(provider), k.Budgets(provider))
	}
	return r, nil
}

const read, readwrite = "read", "readwrite"

// Etcd is where roles and users are.
type Etcd struct {
	Client  *clientv3.Client
	Timeout time.Duration // of one call of its methods
}

// call runs f within the timeout. An error says what was tried.
func (e Etcd) call(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	return etcdcall.Wrap(ctx, what, f(ctx))
}

// Put makes etcd have the role with exactly these grants: what it has beside
// them is revoked.
func (e Etcd) Put(ctx context.Context, r Role) error {
	return e.call(ctx, "set up role "+r.Name, func(ctx context.Context) error {
		if _, err := e.Client.RoleAdd(ctx, r.Name); err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
			return err
		}
		has, err := e.Client.RoleGet(ctx, r.Name)
		if err != nil {
			return err
		}
		for _, p := range has.Perm {
			// To write only is nothing that this package ever grants.
			if p.PermType == authpb.WRITE || !slices.Contains(r.Grants, grantOf(p)) {
				if _, err := e.Client.RoleRevokePermission(ctx, r.Name, string(p.Key), string(p.RangeEnd)); err != nil {
					return err
				}
			}
		}
		for _, g := range r.Grants {
			may := clientv3.PermissionType(clientv3.PermReadWrite)
			if g.Permission == read {
				may = clientv3.PermissionType(clientv3.PermRead)
			}
			if _, err := e.Client.RoleGrantPermission(ctx, r.Name, g.Key, g.End, may); err != nil {
				return err
			}
		}
		return nil
	})
}

func grantOf(p *authpb.Permission) Grant {
	g := Grant{string(p.Key), string(p.RangeEnd), readwrite}
	if p.PermType == authpb.READ {
		g.Permission = read
	}
	return g
}

// List returns the roles in etcd that are Quotient's by their name, with what
// they are granted now.
func (e Etcd) List(ctx context.Context) (all []Role, err error) {
	err = e.call(ctx, "list the roles", func(ctx context.Context) error {
		list, err := e.Client.RoleList(ctx)
		if err != nil {
			return err
		}
		for _, name := range list.Roles {
			if !strings.HasPrefix(name, "quotient-") {
				continue
			}
			has, err := e.Client.RoleGet(ctx, name)
			if err != nil {
				return err
			}
			r := Role{name, []Grant{}}
			for _, p := range has.Perm {
				r.Grants = append(r.Grants, grantOf(p))
			}
			all = append(all, r)
		}
		return nil
	})
	return all, err
}

// User is an etcd user that is to have a role.
type User struct {
	Name string
	// Password is for a user that is added; with NoPassword the user logs in by a
	// client certificate with this name.
	Password   string
	NoPassword bool
}

// UserExists tells whether etcd knows a user.
func (e Etcd) UserExists(ctx context.Context, name string) (exists bool, err error) {
	err = e.call(ctx, "look for user "+name, func(ctx context.Context) error {
		_, err := e.Client.UserGet(ctx, name)
		if exists = err == nil; errors.Is(err, rpctypes.ErrUserNotFound) {
			return nil
		}
		return err
	})
	return exists, err
}

// GrantTo gives a user a role, and adds the user first if there is none;
// added tells that. A user that exists keeps the password.
func (e Etcd) GrantTo(ctx context.Context, u User, role string) (added bool, err error) {
	err = e.call(ctx, "grant "+role+" to "+u.Name, func(ctx context.Context) error {
		_, err := e.Client.UserAddWithOptions(ctx, u.Name, u.Password, &clientv3.UserAddOptions{NoPassword: u.NoPassword})
		if added = err == nil; err != nil && !errors.Is(err, rpctypes.ErrUserAlreadyExist) {
			return err
		}
		_, err = e.Client.UserGrantRole(ctx, u.Name, role)
		return err
	})
	return added, err
}

// Authenticated tells whether etcd asks its clients for their identity: only then
// do roles count.
func (e Etcd) Authenticated(ctx context.Context) (on bool, err error) {
	err = e.call(ctx, "ask for authentication", func(ctx context.Context) error {
		r, err := e.Client.AuthStatus(ctx)
		on = err == nil && r.Enabled
		return err
	})
	return on, err
}

// Authenticate makes etcd ask its clients for their identity. It needs a user root with
// role root.
func (e Etcd) Authenticate(ctx context.Context) error {
	return e.call(ctx, "turn authentication on", func(ctx context.Context) error {
		_, err := e.Client.AuthEnable(ctx)
		return err
	})
}
