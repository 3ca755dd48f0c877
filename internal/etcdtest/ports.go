package etcdtest

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are chosen below those that systems give to outgoing connections (from
// 32768 on with Linux, from 49152 on elsewhere): one of those that is free now
// may be the near end of somebody's connection a moment later, or while a member
// is down, and then nobody can listen on it.
const (
	lowestPort  = 10000
	highestPort = 32000
)

// FreeAddresses returns n loopback addresses, chosen at random, on which nobody
// listens. For servers that must be told their port; whoever can listen on port
// 0 should.
func FreeAddresses(n int) ([]string, error) {
	var addresses []string
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	var err error
	for tries := 0; len(addresses) < n; tries++ {
		if tries == 100+n {
			return nil, fmt.Errorf("no free port between %d and %d: %w", lowestPort, highestPort, err)
		}
		var l net.Listener
		l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lowestPort+rand.IntN(highestPort-lowestPort)))
		if err != nil {
			continue
		}
		listeners = append(listeners, l)
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}
