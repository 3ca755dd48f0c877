package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// RoleKind says what a role is for.
type RoleKind string

// The kinds of roles. None of them may more than its kind needs.
const (
	// RoleConsumer is for the instances of one provider's consumer: it reads the
	// provider, and writes instances, the level and reports. Consumers of one
	// provider trust each other.
	RoleConsumer RoleKind = "consumer"
	// RoleOperator sets policies, of one provider or of all, and looks at fleets.
	RoleOperator RoleKind = "operator"
	// RoleReader reads, one provider or all, and writes nothing: not even that it
	// looks.
	RoleReader RoleKind = "reader"
)

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

// NewRole returns the role of a kind for a provider, or for all where provider
// is empty: readers and operators only. Nothing is written.
func (a *Admin) NewRole(kind RoleKind, provider string) (Role, error) {
	k := a.keys
	r := Role{Name: "quotient-" + string(kind)}
	if provider != "" {
		if err := quota.ValidateProvider(provider); err != nil {
			return r, err
		}
		r.Name += ":" + provider
	}
	if k.prefix != DefaultPrefix {
		r.Name += "@" + k.prefix
	}
	under := func(prefix string, write bool) {
		r.Grants = append(r.Grants, Grant{prefix, clientv3.GetPrefixRangeEnd(prefix), write})
	}
	one := func(key string) { r.Grants = append(r.Grants, Grant{Key: key, Write: true}) }
	switch {
	case kind == RoleConsumer && provider == "":
		return r, errors.New("coordinator: a consumer's role is for one provider: name it")
	case kind == RoleConsumer:
		under(k.provider(provider), false)
		under(k.instances(provider), true)
		one(k.level(provider))
		under(k.reports(provider), true)
		under(k.observers(provider), false)
	case kind == RoleOperator && provider == "":
		under(k.prefix, false)
		under(k.providers(), true)
		under(k.histories(), true)
		under(k.allObservers(), true)
	case kind == RoleOperator:
		under(k.provider(provider), false)
		one(k.policy(provider))
		under(k.history(provider), true)
		under(k.reports(provider), false)
		under(k.observers(provider), true)
	case kind == RoleReader && provider == "":
		under(k.prefix, false)
	case kind == RoleReader:
		under(k.provider(provider), false)
		under(k.history(provider), false)
		under(k.reports(provider), false)
		under(k.observers(provider), false)
	default:
		return r, fmt.Errorf("coordinator: there is no role %q", kind)
	}
	return r, nil
}

// PutRole makes etcd have the role with exactly these grants: what it has beside
// them is revoked. It takes etcd's root.
func (a *Admin) PutRole(ctx context.Context, r Role) error {
	ctx, cancel := context.WithTimeout(ctx, a.o.Timeout)
	defer cancel()
	if _, err := a.client.RoleAdd(ctx, r.Name); err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
		return classify(ctx, "add role "+r.Name, err)
	}
	has, err := a.client.RoleGet(ctx, r.Name)
	if err != nil {
		return classify(ctx, "read role "+r.Name, err)
	}
	for _, p := range has.Perm {
		if !slices.Contains(r.Grants, grantOf(p)) {
			if _, err := a.client.RoleRevokePermission(ctx, r.Name, string(p.Key), string(p.RangeEnd)); err != nil {
				return classify(ctx, "revoke from role "+r.Name, err)
			}
		}
	}
	for _, g := range r.Grants {
		kind := clientv3.PermissionType(clientv3.PermRead)
		if g.Write {
			kind = clientv3.PermissionType(clientv3.PermReadWrite)
		}
		if _, err := a.client.RoleGrantPermission(ctx, r.Name, g.Key, g.End, kind); err != nil {
			return classify(ctx, "grant to role "+r.Name, err)
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

// Roles returns the roles in etcd that are Quotient's by their name, with what
// they are granted now.
func (a *Admin) Roles(ctx context.Context) ([]Role, error) {
	ctx, cancel := context.WithTimeout(ctx, a.o.Timeout)
	defer cancel()
	list, err := a.client.RoleList(ctx)
	if err != nil {
		return nil, classify(ctx, "list the roles", err)
	}
	var all []Role
	for _, name := range list.Roles {
		if !strings.HasPrefix(name, "quotient-") {
			continue
		}
		has, err := a.client.RoleGet(ctx, name)
		if err != nil {
			return nil, classify(ctx, "read role "+name, err)
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
func (a *Admin) UserExists(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, a.o.Timeout)
	defer cancel()
	_, err := a.client.UserGet(ctx, name)
	if errors.Is(err, rpctypes.ErrUserNotFound) {
		return false, nil
	}
	return err == nil, classify(ctx, "look for user "+name, err)
}

// GrantRole gives a user a role, and adds the user first if there is none;
// added tells that. A user who is there keeps the password. It takes etcd's root.
func (a *Admin) GrantRole(ctx context.Context, u User, role string) (added bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.o.Timeout)
	defer cancel()
	_, err = a.client.UserAddWithOptions(ctx, u.Name, u.Password, &clientv3.UserAddOptions{NoPassword: u.NoPassword})
	if err != nil && !errors.Is(err, rpctypes.ErrUserAlreadyExist) {
		return false, classify(ctx, "add user "+u.Name, err)
	}
	added = err == nil
	_, err = a.client.UserGrantRole(ctx, u.Name, role)
	return added, classify(ctx, "grant "+role+" to "+u.Name, err)
}

// Authenticated tells whether etcd asks its clients who they are: only then do
// roles count.
func (a *Admin) Authenticated(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, a.o.Timeout)
	defer cancel()
	r, err := a.client.AuthStatus(ctx)
	if err != nil {
		return false, classify(ctx, "ask for authentication", err)
	}
	return r.Enabled, nil
}
