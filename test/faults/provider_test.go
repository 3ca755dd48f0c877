//go:build e2e && linux

package faults

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// providerConfig is the provider process.
type providerConfig struct {
	Socket string
	Window time.Duration
}

// record is what a provider has counted: calls by the window that they arrived
// in, and permits by the window that they are of. Windows are told by their
// starts, in nanoseconds since the Unix epoch.
type record struct {
	Arrived map[int64]int64
	Issued  map[int64]int64
	// By is Issued by instance.
	By map[int64]map[int64]int64
}

// beProvider counts calls, and tells the record at last.
// A call arrives when the kernel takes it, by this host's clock: how long this
// process waits for a processor makes no difference.
func beProvider(c providerConfig, gone over, tell func(told)) error {
	conn, err := listen(c.Socket)
	if err != nil {
		return err
	}
	tell(told{Ready: true})
	go func() {
		<-gone
		_ = conn.SetReadDeadline(time.Now())
	}()
	r := record{map[int64]int64{}, map[int64]int64{}, map[int64]map[int64]int64{}}
	call, control := make([]byte, 64), make([]byte, 128)
	for {
		n, nc, _, _, err := conn.ReadMsgUnix(call, control)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			tell(told{Record: &r})
			return nil
		}
		if err != nil {
			return err
		}
		if n != 24 {
			return fmt.Errorf("a call of %d bytes", n)
		}
		at, err := stamp(control[:nc])
		if err != nil {
			return err
		}
		id, start, permits := int64(binary.BigEndian.Uint64(call)), int64(binary.BigEndian.Uint64(call[8:])), int64(binary.BigEndian.Uint64(call[16:]))
		r.Arrived[at-at%int64(c.Window)] += permits
		r.Issued[start] += permits
		if r.By[id] == nil {
			r.By[id] = map[int64]int64{}
		}
		r.By[id][start] += permits
	}
}

// stamp returns when the kernel took a message.
func stamp(control []byte) (int64, error) {
	all, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, err
	}
	for _, m := range all {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			return (*unix.Timespec)(unsafe.Pointer(&m.Data[0])).Nano(), nil
		}
	}
	return 0, errors.New("a message without a time")
}
