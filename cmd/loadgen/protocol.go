package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// The parent and a child talk over the child's standard input and output, a JSON
// object a line: orders go down, reports come up. Each object has exactly one
// field, which says what it is; unknown fields are refused, for both ends are the
// same program. The first order is the setup. Orders are obeyed in turn and have
// no answer of their own, but for the last, end, which is answered by ended. When
// the child's input is closed the parent is gone, and the child ends at once.

// maxLine bounds a line. The longest is a worker's histogram, of some 10 KB.
const maxLine = 1 << 20

// order is what the parent tells a child.
type order struct {
	Setup *setup `json:"setup,omitempty"`
	// Join opens instances in these slots of the fleet.
	Join *joining `json:"join,omitempty"`
	// Replace lets the instance in a slot leave, announced, and another join in
	// its place at once. While the slot's instance has not joined yet, nothing
	// happens.
	Replace *int `json:"replace,omitempty"`
	// Limits are in force from now on: instances ask for as much as they demand.
	Limits string `json:"limits,omitempty"`
	// Start and Stop are the instants from which delays count and at which calls
	// end, in nanoseconds since the epoch.
	Start int64 `json:"start,omitempty"`
	Stop  int64 `json:"stop,omitempty"`
	// End stops the calls now, and closes all instances.
	End bool `json:"end,omitempty"`
}

// setup is what a child must know before anything else.
type setup struct {
	Etcd      connection    `json:"etcd,omitzero"`
	Provider  string        `json:"provider,omitempty"`
	Limits    string        `json:"limits"`
	Window    time.Duration `json:"window"` // of the shortest limit
	Cell      time.Duration `json:"cell"`   // by which permits are counted
	Instances int           `json:"instances,omitempty"`
	Demand    float64       `json:"demand,omitempty"`
	Skew      string        `json:"skew,omitempty"`
	Arrival   string        `json:"arrival,omitempty"`
	Seed      uint64        `json:"seed,omitempty"`
	MaxWait   time.Duration `json:"max_wait,omitempty"`
	Probe     time.Duration `json:"probe,omitempty"`
	NTP       []string      `json:"ntp,omitempty"`
	// Paced says that permits come all along a window, by pacing or by shape.
	Paced bool `json:"paced,omitempty"`
	// Weights are how instances weigh, as config.weights; empty: all the same.
	Weights string `json:"weights,omitempty"`
	// Shares lets the child's status tell what share each instance has.
	Shares bool `json:"shares,omitempty"`
	// Generators is how many goroutines make calls.
	Generators int `json:"generators,omitempty"`
	// Guard is the policy's.
	Guard guard `json:"guard,omitzero"`
	// Lengths are those of the windows in which the provider counts.
	Lengths []time.Duration `json:"lengths,omitempty"`
	// Counts is the file to count in; empty for memory of its own.
	Counts string `json:"counts,omitempty"`
	// Target is the address of the provider that every permit makes a request to;
	// empty for none.
	Target string `json:"target,omitempty"`
}

// joining is a set of slots, and whether an instance that cannot join at once
// tries again until it can.
type joining struct {
	Slots []int `json:"slots"`
	Retry bool  `json:"retry,omitempty"`
}

// report is what a child tells the parent.
type report struct {
	Status *status `json:"status,omitempty"`
	// Left says that an instance that was to be replaced is gone, and what kept
	// it from leaving in good order, if anything.
	Left *departed `json:"left,omitempty"`
	// Failed says why the child cannot do what it was told to.
	Failed string `json:"failed,omitempty"`
	// Listening is the address at which a provider process serves.
	Listening string `json:"listening,omitempty"`
	// Ended is the last report.
	Ended *ended `json:"ended,omitempty"`
}

// status is how a child fares. It comes every 100 ms.
type status struct {
	Active  int           `json:"active"`            // instances that are active now
	Ready   int           `json:"ready"`             // instances that were active once
	Problem string        `json:"problem,omitempty"` // of one that is not active
	Issued  int64         `json:"issued"`
	CPU     time.Duration `json:"cpu"`     // used by the process
	MaxRSS  int64         `json:"max_rss"` // bytes, the most there ever was
	// Beyond is how far the guard did not cover a clock's distance from the
	// provider's, at most.
	Beyond time.Duration `json:"beyond,omitempty"`
	Shares []held        `json:"shares,omitempty"`
}

// held is an instance's slot, when it joined, in nanoseconds since the epoch, and
// its share.
type held [3]int64

// departed is an instance that has left.
type departed struct {
	Slot    int    `json:"slot"`
	Problem string `json:"problem,omitempty"`
}

// ended is what a child has to say at last.
type ended struct {
	// Took is the histogram of immediate grants, as HdrHistogram encodes it.
	Took []byte `json:"took,omitempty"`
	// Delay is one of how long calls waited for their permits.
	Delay []byte `json:"delay,omitempty"`
	// Sent and Lost count requests to the provider: those that were answered,
	// and those that were not.
	Sent    int64  `json:"sent,omitempty"`
	Lost    int64  `json:"lost,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// parseOrder reads one line.
func parseOrder(line []byte) (order, error) {
	var o order
	err := parseLine(line, &o, func() int {
		return count(o.Setup != nil, o.Join != nil, o.Replace != nil, o.Limits != "", o.Start != 0, o.Stop != 0, o.End)
	})
	return o, err
}

// parseReport reads one line.
func parseReport(line []byte) (report, error) {
	var r report
	err := parseLine(line, &r, func() int {
		return count(r.Status != nil, r.Left != nil, r.Failed != "", r.Listening != "", r.Ended != nil)
	})
	return r, err
}

func count(set ...bool) (n int) {
	for _, is := range set {
		if is {
			n++
		}
	}
	return n
}

func parseLine(line []byte, into any, fields func() int) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("line %.80q: %w", line, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("line %.80q: more than one object", line)
	}
	if n := fields(); n != 1 {
		return fmt.Errorf("line %.80q: %d fields, want exactly one", line, n)
	}
	return nil
}

// eachLine reads lines until r ends, or f fails.
func eachLine(r io.Reader, f func(line []byte) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		if err := f(s.Bytes()); err != nil {
			return err
		}
	}
	return s.Err()
}

// lineWriter writes objects, a line each. It is safe for concurrent use.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lineWriter) write(object any) error {
	b, err := json.Marshal(object)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.w.Write(append(b, '\n'))
	return err
}
