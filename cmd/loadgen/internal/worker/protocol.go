package worker

import "time"

// The parent orders, a child reports; each object has one field, which says what it
// is. The first order is the setup. Orders are obeyed in turn and have no answer of
// their own, but for the last, end, which is answered by ended.

// Order is what the parent tells a child.
type Order struct {
	Setup *Setup `json:"setup,omitempty"`
	// Join opens instances in these slots of the fleet.
	Join *Joining `json:"join,omitempty"`
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

// Setup is what a child must know before anything else.
type Setup struct {
	// Args are the run's flags, which say most of it.
	Args []string `json:"args"`
	// Endpoints are those of the embedded etcd; Password is the user's of another.
	// Both go through a pipe, and stand in no argument list and no environment.
	Endpoints []string `json:"endpoints,omitempty"`
	Password  string   `json:"password,omitempty"`
	Provider  string   `json:"provider,omitempty"`
	// Limits are in force.
	Limits string `json:"limits,omitempty"`
	// Tolerance is how far limiters' clocks may be from the child's.
	Tolerance time.Duration `json:"tolerance,omitempty"`
	// Generators is how many goroutines make calls.
	Generators int `json:"generators,omitempty"`
	// Counts is the file to count in.
	Counts string `json:"counts,omitempty"`
	// Target is the address of the provider that every permit makes a request to;
	// empty for none.
	Target string `json:"target,omitempty"`
	// Secret is what requests to the provider show, so that it counts no others.
	Secret string `json:"secret,omitempty"`
}

// Joining is a set of slots, and whether an instance that cannot join at once
// tries again until it can.
type Joining struct {
	Slots []int `json:"slots"`
	Retry bool  `json:"retry,omitempty"`
}

// Report is what a child tells the parent.
type Report struct {
	Status *Status `json:"status,omitempty"`
	// Left says that an instance that was to be replaced is gone, and what kept
	// it from leaving in good order, if anything.
	Left *Departed `json:"left,omitempty"`
	// Failed says why the child cannot do what it was told to.
	Failed string `json:"failed,omitempty"`
	// Listening is the address at which a provider process serves.
	Listening string `json:"listening,omitempty"`
	// Ended is the last report.
	Ended *Ended `json:"ended,omitempty"`
}

// Status is how a child fares. It comes every 100 ms.
type Status struct {
	Active  int           `json:"active"`            // instances that are active now
	Ready   int           `json:"ready"`             // instances that were active once
	Problem string        `json:"problem,omitempty"` // of one that is not active
	Issued  int64         `json:"issued"`
	CPU     time.Duration `json:"cpu"`     // used by the process
	MaxRSS  int64         `json:"max_rss"` // bytes, the most there ever was
	// Worst is how far a permit was outside its window, at most.
	Worst time.Duration `json:"worst,omitempty"`
	// Beyond is how far the guard did not cover a clock's distance from the
	// provider's, at most.
	Beyond time.Duration `json:"beyond,omitempty"`
	Shares []held        `json:"shares,omitempty"`
}

// held is an instance's slot, when it joined, in nanoseconds since the epoch, and
// its share.
type held [3]int64

// Departed is an instance that has left.
type Departed struct {
	Slot    int    `json:"slot"`
	Problem string `json:"problem,omitempty"`
}

// Ended is what a child has to say at last.
type Ended struct {
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
