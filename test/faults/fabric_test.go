//go:build e2e && linux

package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// link is how a host is attached: what every packet from and to it suffers.
type link struct {
	delay, jitter time.Duration
	loss          float64 // part of the packets, 0 to 1
}

// fabric joins the hosts' namespaces: each has a TUN device whose packets are
// read here, delayed or lost as its link says, and written to the device of the
// host that they are for. It stands in for tc netem, which not every kernel has.
type fabric struct {
	mu    sync.Mutex
	ports map[[4]byte]*port
}

type port struct {
	device *os.File
	link   link      // guarded by fabric.mu
	last   time.Time // when the last packet leaves, guarded by fabric.mu: none overtakes
}

// attach opens the TUN device of a namespace, named "wire", for an address.
func (f *fabric) attach(namespace string, address [4]byte) error {
	device, err := openTUN(namespace)
	if err != nil {
		return fmt.Errorf("device of %s: %w", namespace, err)
	}
	p := &port{device: device}
	f.mu.Lock()
	f.ports[address] = p
	f.mu.Unlock()
	go f.read(p)
	return nil
}

func (f *fabric) set(address [4]byte, l link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ports[address].link = l
}

// read forwards what comes from a port until its device is closed.
func (f *fabric) read(from *port) {
	packet := make([]byte, 65536)
	for {
		n, err := from.device.Read(packet)
		if err != nil {
			return
		}
		if n < 20 || packet[0]>>4 != 4 {
			continue // not IPv4
		}
		f.mu.Lock()
		to := f.ports[[4]byte(packet[16:20])]
		if to == nil || rand.Float64() < from.link.loss || rand.Float64() < to.link.loss {
			f.mu.Unlock()
			continue
		}
		delay := spread(from.link) + spread(to.link)
		now := time.Now()
		leaves := now.Add(delay)
		if leaves.Before(from.last) {
			leaves = from.last
		}
		from.last = leaves
		f.mu.Unlock()
		if delay == 0 && !leaves.After(now) {
			_, _ = to.device.Write(packet[:n]) // a host that has gone loses it
			continue
		}
		late := append([]byte(nil), packet[:n]...)
		time.AfterFunc(leaves.Sub(now), func() { _, _ = to.device.Write(late) })
	}
}

func spread(l link) time.Duration {
	if l.jitter == 0 {
		return l.delay
	}
	return max(0, l.delay+time.Duration(rand.Int64N(int64(2*l.jitter)))-l.jitter)
}

func (f *fabric) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.ports {
		_ = p.device.Close()
	}
}

// openTUN makes the device in the namespace; "" is the one that this process is in.
// The thread returns, and is used again: one that ends would take the processes that
// it started along.
func openTUN(namespace string) (file *os.File, err error) {
	if namespace != "" {
		runtime.LockOSThread()
		home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		defer unix.Close(home)
		ns, err := unix.Open("/run/netns/"+namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		defer unix.Close(ns)
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			return nil, err
		}
		defer func() {
			if unix.Setns(home, unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
		}()
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	request := struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}{flags: unix.IFF_TUN | unix.IFF_NO_PI}
	copy(request.name[:], "wire")
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&request))); errno != 0 {
		_ = unix.Close(fd)
		return nil, errno
	}
	return os.NewFile(uintptr(fd), namespace+"/wire"), nil
}
