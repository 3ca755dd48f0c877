package etcdcall

import (
	"regexp"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// reconnecting is held by the Reconnect or EndBackoff under way: sessions may share a client.
var reconnecting sync.Mutex

// Reconnect has a client make its connections anew. What is under way on the ones before stays there:
// gRPC closes each when its last call has ended.
//
// gRPC itself keeps a connection, or an attempt to connect, on which nothing comes back. In a network that
// was cut TCP sends again after ever longer pauses. So the connection stands still for as long as the cut
// took, once more. gRPC gives a connection up only when its address is gone. So the client is given the
// same endpoints written in another way, and then as they were. It always has endpoints that are right,
// for etcd's client reads them without a lock.
//
// An endpoint without a port in digits keeps its connection.
func Reconnect(client *clientv3.Client) {
	reconnecting.Lock()
	defer reconnecting.Unlock()
	endpoints := client.Endpoints()
	respelled := make([]string, len(endpoints))
	for i, e := range endpoints {
		respelled[i] = respell(e)
	}
	client.SetEndpoints(respelled...)
	client.SetEndpoints(endpoints...)
}

// EndBackoff has the client connect at once to endpoints that gRPC has failed to reach and waits for. gRPC looks
// through its connections there without a lock, which a Reconnect would change meanwhile: the two exclude each other.
func EndBackoff(client *clientv3.Client) {
	reconnecting.Lock()
	defer reconnecting.Unlock()
	client.ActiveConnection().ResetConnectBackoff()
}

// port is that of an endpoint.
var port = regexp.MustCompile(`:(\d+)(/?)$`)

// respell writes an endpoint in another way, unless it has no port in digits: zeros at the beginning of that change
// nothing.
func respell(endpoint string) string { return port.ReplaceAllString(endpoint, ":0$1$2") }
