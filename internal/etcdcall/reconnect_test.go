package etcdcall

import (
	"net"
	"net/url"
	"testing"
)

// TestRespell: what an endpoint is written as for a moment leads to the same place.
func TestRespell(t *testing.T) {
	for endpoint, want := range map[string]string{
		"10.0.0.1:2379": "10.0.0.1:02379", "http://10.0.0.1:2379": "http://10.0.0.1:02379", "https://etcd-1:2379/": "https://etcd-1:02379/",
		"[::1]:2379": "[::1]:02379", "http://[::1]:02379": "http://[::1]:002379",
		"etcd-1": "etcd-1", "http://etcd-1": "http://etcd-1", "http://[::1]": "http://[::1]", "etcd-1:http": "etcd-1:http", "unix:///run/etcd.sock": "unix:///run/etcd.sock",
	} {
		if got := respell(endpoint); got != want {
			t.Errorf("%s became %s, want %s", endpoint, got, want)
		}
	}
	u, err := url.Parse(respell("https://127.0.0.1:2379"))
	if err != nil || u.Hostname() != "127.0.0.1" {
		t.Fatal(u, err)
	}
	if a, err := net.ResolveTCPAddr("tcp", u.Host); err != nil || a.Port != 2379 {
		t.Errorf("%s is %v, %v", u.Host, a, err)
	}
}
