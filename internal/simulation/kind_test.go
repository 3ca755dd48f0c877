package simulation

// Kind is a family of histories: what may happen in it, and what is promised.
type Kind int

// The kinds.
const (
	// Stop has the outage rule stop, one timing for all of the history, and
	// every trouble there is. The exact bound holds for each window.
	Stop Kind = iota
	// Timing is Stop with changes of the settle time, the freshness and the
	// guard.
	Timing
	// Restore is Stop with an etcd that is put back to an earlier revision.
	Restore
	// Hold has the outage rule hold and, at the end, an outage of all of etcd
	// that does not end. The sum stays exact.
	Hold
	// Split has the outage rule hold, and partitions that cut some instances
	// off. What is issued with a recent proof is exact; what is held on top of
	// that is measured.
	Split
	// Switch is Stop with changes of the outage rule. What is issued with a recent
	// proof is exact; without one only who knows of the rule hold issues anything.
	Switch
	// Measured is Stop with operating systems' clocks that are seconds off, and
	// set at will: corrected time follows NTP servers, of which a minority lie.
	Measured
	// Calm has nothing but joins, leaves and changes of limits that are
	// announced in time, and nobody is late: nothing may be lost, but for windows in
	// which the provider asked for a pause.
	Calm
	kinds
)

var kindNames = [kinds]string{"Stop", "Timing", "Restore", "Hold", "Split", "Switch", "Measured", "Calm"}

// String returns the kind's name as it is spelled in Go.
func (k Kind) String() string { return kindNames[k] }

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Stop, Timing, Restore, Hold, Split, Switch, Measured, Calm} }
