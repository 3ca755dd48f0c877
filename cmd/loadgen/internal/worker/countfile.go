package worker

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/edsrzf/mmap-go"

	"github.com/quotient-limiter/quotient/internal/load"
)

// countFile is memory for counts that is a mapped file, so that the counts survive
// the process. It grows by blocks. Its methods are safe for concurrent use.
type countFile struct {
	mu     sync.Mutex
	file   *os.File
	size   int64
	failed func(error)
}

// newCountFile makes the file. It must not be there yet. failed is told if the
// file cannot grow later on; what is counted from then on is lost to others.
func newCountFile(name string, failed func(error)) (*countFile, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	return &countFile{file: f, failed: failed}, err
}

// room returns a block of its own in the file.
func (c *countFile) room() *load.Block {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.file.Truncate(c.size + load.BlockBytes)
	var m mmap.MMap
	if err == nil {
		m, err = mmap.MapRegion(c.file, load.BlockBytes, mmap.RDWR, 0, c.size)
	}
	if err != nil {
		c.failed(fmt.Errorf("file of counts: %w", err))
		return new(load.Block)
	}
	c.size += load.BlockBytes
	return (*load.Block)(unsafe.Pointer(unsafe.SliceData(m))) //nolint:gosec // the block's layout is the file's; a mapping is aligned to a page
}

// CountsIn reads a file of counts and removes it. No file means that nothing was
// counted: its process ended before it made one.
func CountsIn(name string) (load.Sums, error) {
	data, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err = errors.Join(err, os.Remove(name)); err != nil {
		return nil, err
	}
	return load.ReadBlocks(data)
}

// Memory is room for counts that nobody needs after the process has ended.
func Memory() *load.Block { return new(load.Block) }
