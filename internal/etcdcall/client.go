package etcdcall

import (
	"errors"
	"fmt"
	"reflect"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Usable returns an error for a client that cannot serve what asks for it. A client whose parts
// were replaced, as clientv3/namespace, ordering and leasing do, is one: a session reads and
// writes by the connection itself, so the wrapper would see some of its keys and not others.
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
	return nil
}
