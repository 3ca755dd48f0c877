package etcdcall

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Usable returns an error for a client that cannot serve what asks for it. A client whose parts
// were replaced, as clientv3/namespace, ordering and leasing do, is one: a session reads and
// writes by the connection itself, so the wrapper would see some of its keys and not others. So is
// one with TLS whose address begins with http://: it would connect in the clear and say nothing.
func Usable(client *clientv3.Client) error {
	switch {
	case client == nil:
		return errors.New("the client is nil: make one with clientv3.New")
	case client.ActiveConnection() == nil:
		return errors.New("the client has no connection: make it with clientv3.New")
	}
	own := reflect.TypeFor[clientv3.Client]().PkgPath()
	for _, part := range []any{client.KV, client.Watcher, client.Lease} {
		if t := reflect.TypeOf(part); t == nil || t.Kind() != reflect.Pointer || t.Elem().PkgPath() != own {
			return fmt.Errorf("the client is wrapped (%T), and a session would pass the wrapper by: "+
				"pass the client as clientv3.New made it; Prefix gives a fleet keys of its own", part)
		}
	}
	if plain := slices.IndexFunc(client.Endpoints(), func(e string) bool { return strings.HasPrefix(e, "http://") }); plain >= 0 && hasTLS(client) {
		return fmt.Errorf("%s is without TLS, but the client's configuration has TLS: write https:// or host:port only", client.Endpoints()[plain])
	}
	return nil
}

// hasTLS reports whether a client was configured with TLS. No method tells, so it reads the client's own field; false if
// a later version of the client has no such field.
func hasTLS(client *clientv3.Client) bool {
	cfg := reflect.ValueOf(client).Elem().FieldByName("cfg")
	if cfg.Kind() != reflect.Struct {
		return false
	}
	tls := cfg.FieldByName("TLS")
	return tls.Kind() == reflect.Pointer && !tls.IsNil()
}
