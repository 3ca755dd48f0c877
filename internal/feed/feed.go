// Package feed is the seam between what learns (a coordinator session) and
// what enforces (a limiter): the calls by which the one tells the other which
// views it has held, and how recent they are proved to be.
//
// It exists so that consumer and coordinator need not import each other.
package feed

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// Sink takes what a source learns about one provider. Reset, Restored, Apply, Prove, Announce, Trouble
// and Close come one at a time, in revision order. The other methods may be called by other
// goroutines at the same time, also during and after Close. The source never calls from
// within a call that the sink made to the source. A sink does not block.
type Sink interface {
	// Reset starts a new history: at the instant at, the source holds view v, in which
	// this process is the incarnation self. Views held before count as a share of 0.
	// Called first, and after every gap.
	Reset(at clock.Instant, self string, v protocol.View)
	// Restored says that etcd is not the store any more that it was, or was put back: the Reset
	// of it comes next. Permits of keys' long limits that are in hand count no more.
	Restored()
	// Apply moves the view on by exactly one revision. A change whose revision
	// is not newer than the view's is ignored.
	Apply(at clock.Instant, c protocol.Change)
	// Prove says that the view held contains every change that was committed
	// before the instant sent. Proofs may arrive in any order; the newest
	// counts.
	Prove(sent clock.Instant)
	// Announce binds the sink to its own announced end, as soon as the
	// announcement is sent and whether or not it commits: no window that starts
	// at or after until (corrected wall time, nanoseconds) is served.
	Announce(until int64)
	// Carry has the sink ask others for permits and lend to them from now on, by the
	// carrier; with nil it does neither any more.
	Carry(c Carrier)
	// Borrow adds what a host has lent to this process.
	Borrow(host string, loan protocol.Note)
	// Asked has the sink lend to a guest that asks.
	Asked(guest string, ask protocol.Note)
	// Pushed returns a channel of the newest pause that the provider has asked the
	// sink for; who asks is the source's to fill in.
	Pushed() <-chan protocol.Ask
	// Uses hands out what this process does with its parts of long limits, its own and those of
	// keys, where it wants more or gives some back: at most so many uses. Each is returned by Fund.
	// If more wait, Wanting says so. The source is to call Uses again after about look, or when
	// Wanting says so if look is 0.
	Uses(most int) (all []escrow.KeyUse, look time.Duration)
	// Fund returns them, with the purses as they are after etcd has answered.
	Fund(all []escrow.KeyUse)
	// Wanting returns a channel that tells when more of a budget is wanted, also of a key's.
	Wanting() <-chan struct{}
	// Heard tells of the total of a limit in flight, by its name in etcd, that was written at a revision.
	// Others ask in it for permits, or have given some back.
	Heard(limit string, total escrow.Total, revision int64)
	// Needs has the sink call need when Pushed or Wanting has something. need does not
	// block, and does not call the sink. Called once, before Reset.
	Needs(need func())
	// Trouble says what keeps the source from knowing more, and nil when that
	// is over. It changes no share.
	Trouble(err error)
	// Close says that the source serves the sink no more: its last subscriber
	// has left, or the source itself is closed. It comes once, and no Reset, Apply, Prove
	// or Announce comes after it.
	Close()
	// Report says how the sink is doing.
	Report(now clock.Instant) protocol.Report
}

// Carrier brings what instances tell each other about loans. Its methods do not block and do
// not call the sink. Messages may be lost, late, repeated, and in any order.
type Carrier interface {
	// Tell tells a guest what the incarnation self, which is this process, has lent to it.
	Tell(self, guest string, loan protocol.Note)
	// Ask asks others for permits in the name of self.
	Ask(self string, all []protocol.Request)
}

// Source is what a limiter needs of a coordinator.
type Source interface {
	// Subscribe makes this process an instance of the provider and reports to
	// the sink that create returns; create is called only if the source serves
	// the provider to nobody yet. It returns at once; what it cannot do now it
	// goes on trying, and says so by Trouble. The sink is the one that serves the
	// provider. leave, which is called once, gives the place back: that of a
	// provider's last subscriber closes the sink.
	Subscribe(provider string, create func() Sink) (sink Sink, leave func() error, err error)
	// Clock returns the source's clock, by which all its instants are read.
	Clock() *clock.Clock
}
