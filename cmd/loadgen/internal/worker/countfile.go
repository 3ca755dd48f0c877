package worker

import (
	"errors"
	"fmt"
	"os"

	"github.com/edsrzf/mmap-go"

	"github.com/quotient-limiter/quotient/internal/load"
)

// newCountFile makes a file that is memory for so many sheets of counts: the counts
// survive the process. The file must not be there yet.
func newCountFile(name string, sheets int, s *load.Sheet) (mmap.MMap, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the mapping stays
	if err := f.Truncate(int64(sheets) * s.Bytes()); err != nil {
		return nil, err
	}
	return mmap.Map(f, mmap.RDWR, 0)
}

// CountsIn adds what a file of counts has to sums, one for each tally of a sheet, and
// removes it. No file, or an empty one, means that nothing was counted: its process
// ended before it made one.
func CountsIn(name string, s *load.Sheet, sums [][]load.Count) error {
	data, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return nil
	}
	if err = errors.Join(err, os.Remove(name)); err != nil {
		return err
	}
	if int64(len(data))%s.Bytes() != 0 {
		return fmt.Errorf("counts of %d bytes: not a multiple of the %d that a generator has", len(data), s.Bytes())
	}
	for ; len(data) > 0; data = data[s.Bytes():] {
		for i, t := range s.Tallies(data[:s.Bytes()]) {
			sums[i] = load.Merge(sums[i], t.Counts())
		}
	}
	return nil
}
