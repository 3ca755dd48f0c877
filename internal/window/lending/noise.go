package lending

import "math"

// An ask of a sample is one key in etcd, and an event to each instance. If all of a fleet lack permits
// and ask samples, these events grow with the square of its size. Few of them could bring a permit, and
// among two hundred instances they keep a small etcd from renewing leases and proofs in time. So there is
// a bound for the fleet (Rules.Samples), which each instance keeps by what it hears: beyond it, it asks a
// few hosts one by one.

const (
	events  = 10_000 // that asks of samples may bring all instances in a second, before there are too many
	samples = 32     // that a fleet may ask in a second, however large it is: one hot instance asks twelve
	memory  = 1000   // time constant of what was asked lately
)

// Noise is how many asks of samples there were lately, of others and of this instance. The zero Noise has
// heard none.
type Noise struct {
	at    float64 // of the latest ask
	level float64 // asks by then, each of which counts less as it ages: as many as come in a second
}

// Heard notes that a sample is asked at the instant at.
func (n *Noise) Heard(at float64) { n.level, n.at = n.since(at)+1, max(n.at, at) }

// TooMuch reports whether there were too many such asks lately for one more.
func (n *Noise) TooMuch(at float64, r Rules) bool { return n.since(at) >= r.Samples }

func (n *Noise) since(at float64) float64 { return n.level * math.Exp(-max(0, at-n.at)/memory) }
