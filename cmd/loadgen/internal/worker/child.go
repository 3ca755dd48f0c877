package worker

import (
	"cmp"
	"context"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/internal/cli/child"
)

// Role is that of a process that is a worker.
const Role = "worker"

// RunIfChild turns this process into a worker, and does not return, if it was
// started as one. It comes first of all.
func RunIfChild() {
	child.Be(Role, func(s Setup, orders <-chan Order, tell func(Report)) error {
		w, err := start(s, tell)
		if err != nil {
			return err
		}
		for o := range orders {
			if err := w.obey(o); err != nil {
				return err
			}
		}
		w.end()
		return nil
	})
}

func start(s Setup, tell func(Report)) (*Worker, error) {
	c, err := config.ParseFlags(s.Args, func(name string) string {
		if name == "QUOTIENT_PASSWORD" && s.Password != "" {
			return s.Password
		}
		return os.Getenv(name)
	}, io.Discard)
	if err != nil {
		return nil, err
	}
	c.Ahead = s.Ahead
	sheet := c.Sheet(s.Since)
	generators := min((runtime.GOMAXPROCS(0)+c.Processes-1)/c.Processes, len(s.Slots)) // all workers share the processors
	counts, err := newCountFile(s.Counts, generators, &sheet)
	if err != nil {
		return nil, err
	}
	client, err := c.Client(context.Background(), s.Endpoints)
	if err != nil {
		return nil, err
	}
	return newWorker(c, &s, client, &sheet, counts, tell)
}

// Order is what the parent tells a worker. Orders are obeyed in turn and have no answer.
// At their end the worker stops the calls, closes all instances, and reports that it
// ended.
type Order struct {
	// Replace lets the instance in a slot leave, announced, and another join in
	// its place at once. While the slot's instance has not joined yet, nothing
	// happens.
	Replace *int   `json:"replace,omitempty"`
	State   *State `json:"state,omitempty"` // from now on
}

// State is what all workers go by.
type State struct {
	Limits      string // in force: instances ask for as much as they demand
	Start, Stop int64  // the instants from which delays count and at which calls end, in ns since the epoch
}

// Setup is what a worker must know before anything else.
type Setup struct {
	// Args are the run's flags, which say most of it.
	Args []string `json:"args"`
	// Ahead is as in config.Config.
	Ahead time.Duration
	// Endpoints are those of the embedded etcd; Password is the user's of another.
	// Both go through a pipe, and stand in no argument list and no environment.
	Endpoints []string
	Password  string
	Provider  string
	Slots     []int // in which instances join
	Retry     bool  // one that cannot join at once tries again until it can
	State     State
	Tolerance time.Duration // how far limiters' clocks may be from the worker's
	Counts    string        `json:"counts"` // the file to count in
	Since     int64         // the instant from which is counted
	// Target is the address of the provider that every permit makes a request to;
	// empty for none. Secret is what those requests show, so that it counts no
	// others.
	Target, Secret string
}

// Report is how a worker fares. It comes every 100 ms, and at the end.
type Report struct {
	Failed  string `json:"failed,omitempty"` // why it cannot do what it was told to; then there is nothing else
	Joined  int    // instances that have joined and have not left
	Active  int    // instances that are active now
	Ready   int    // instances that were active once
	Serving int64  // those of them that have not left
	Problem string // of one that is not active
	Issued  int64
	CPU     time.Duration // used by the process
	MaxRSS  int64         // bytes, the most there ever was
	Worst   time.Duration // how far a permit was outside its window, at most
	Beyond  time.Duration // how far the guard did not cover a clock's distance from the provider's, at most
	Shares  []int64       // of the instances in each of Bands
	// Announced and Unannounced are the instances that were to be replaced and have
	// left: in good order or not.
	Announced, Unannounced int
	Ended                  *Ended `json:"ended,omitempty"` // of the last report
}

// Add takes another worker's in.
func (r *Report) Add(o *Report) {
	r.Joined += o.Joined
	r.Active += o.Active
	r.Ready += o.Ready
	r.Serving += o.Serving
	r.Problem = cmp.Or(o.Problem, r.Problem)
	r.Issued += o.Issued
	r.CPU += o.CPU
	r.MaxRSS += o.MaxRSS
	r.Worst, r.Beyond = max(r.Worst, o.Worst), max(r.Beyond, o.Beyond)
	for i, sum := range o.Shares {
		r.Shares[i] += sum
	}
	r.Announced += o.Announced
	r.Unannounced += o.Unannounced
}

// Ended is what a worker has to say at last.
type Ended struct {
	// Took is the histogram of immediate grants, Delay that of how long calls waited
	// for their permits, FirstLoan that of the times to a window's first loan.
	Took, Delay, FirstLoan *hdrhistogram.Snapshot
	// Sent and Lost count requests to the provider: those that were answered,
	// and those that were not, of which Problem is one's.
	Sent, Lost int64
	Problem    string
}
