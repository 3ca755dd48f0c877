package coordinator

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/view"
)

// stateFile is a provider's file in Options.StateDir. It is open and locked for as
// long as its process may issue permits. The kernel releases the lock when the process
// ends, so a process that gets it knows that the one before issues nothing.
type stateFile struct {
	origin string        // of this boot and this file
	locked clock.Instant // when the lock was had
	host   int64         // the host's monotonic clock, no later than that

	mu   sync.Mutex
	file *os.File
	void bool // nothing is written any more
}

// errStateLocked says that another process has the file.
var errStateLocked = errors.New("another process on this host has it locked; each process needs a StateDir of its own")

// openState opens and locks the file of a provider, and reads what the process before
// has left in it: nil, and the reason, if there is nothing to continue.
func openState(dir, prefix, provider string, c *clock.Clock) (f *stateFile, before *view.Checkpoint, why error) {
	sum := sha256.Sum256([]byte(prefix + "\x00" + provider))
	path := filepath.Join(dir, fmt.Sprintf("%s-%x.state", short(provider), sum[:8]))
	file, err := openOwn(path)
	if err != nil {
		return nil, nil, err
	}
	f = &stateFile{file: file}
	if err = lockState(file); err == nil {
		f.origin, err = originOf(file)
	}
	if err == nil {
		f.host, err = hostNow(c)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	f.locked = c.Now()
	text, err := io.ReadAll(io.LimitReader(file, view.MaxCheckpointBytes))
	if err != nil {
		return f, nil, err
	}
	if len(text) == 0 {
		return f, nil, errors.New("no process before has left one here")
	}
	before, why = view.ReadCheckpoint(text, f.origin, f.host)
	return f, before, why
}

// hostNow reads the monotonic clock that all processes of the host share.
func hostNow(c *clock.Clock) (int64, error) {
	if mono, ok := c.Host(); ok {
		return mono, nil
	}
	return hostClock()
}

// write replaces the checkpoint. It is not synced: a reboot makes it void anyway.
func (f *stateFile) write(c *view.Checkpoint) error {
	text, err := c.Encode(f.origin)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.void {
		return nil
	}
	_, err = f.file.WriteAt(text, 0)
	return err
}

// clear makes the checkpoint void, for good. It must be called before etcd is told
// anything that binds a successor too.
func (f *stateFile) clear() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.void = true
	if err := f.file.Truncate(0); !errors.Is(err, os.ErrClosed) { // it was cleared before it was closed
		return err
	}
	return nil
}

// close clears the checkpoint, and gives the lock back if that can be done.
func (f *stateFile) close() error {
	err := f.clear()
	if f == nil || err != nil {
		return err
	}
	return f.file.Close()
}
