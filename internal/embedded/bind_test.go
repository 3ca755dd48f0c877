package embedded

import (
	"net"
	"net/url"
	"testing"
	"time"
)

// TestAPortThatIsFreedSoon: a member waits for a port that somebody still holds.
func TestAPortThatIsFreedSoon(t *testing.T) {
	free, err := FreeAddresses(3)
	if err != nil {
		t.Fatal(err)
	}
	held, err := net.Listen("tcp", free[1])
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(300*time.Millisecond, func() { _ = held.Close() })
	at := func(i int) url.URL { return url.URL{Scheme: "http", Host: free[i]} }
	peer, client := at(0), at(1)
	m := memberConfig{Name: "m0", Dir: t.TempDir(), Peer: peer, Client: client, Metrics: at(2), State: "new", Cluster: "m0=" + peer.String()}
	server, err := m.start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.stop()
	if err := server.ready(); err != nil {
		t.Fatal(err)
	}
}
