package session

import (
	"log/slog"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// Effect is what the session does after a step: one of the types below.
type Effect any

// Effects for the sink of a member. They are in the order in which the sink must hear them.
type (
	// Reset begins the history of an instance, whose ID is Self, with a view.
	Reset struct {
		*Member
		At   clock.Instant // of the step: when the view became known here
		Self string
		View protocol.View
	}
	// Apply is a change of the view.
	Apply struct {
		*Member
		At     clock.Instant // of the step: when the change became known here
		Change protocol.Change
	}
	// Prove says that the view has everything that was committed before Sent, the instant at which the
	// probe was sent.
	Prove struct {
		*Member
		Sent clock.Instant
	}
	// Announce says that this instance takes no part from Until on, in corrected Unix nanoseconds.
	Announce struct {
		*Member
		Until int64
	}
	// Restored says that etcd was restored since the latest view: what the next one says need not follow
	// from that.
	Restored struct{ *Member }
	// Trouble says in Err all that keeps the member's view from being kept up to date. Err is nil when
	// all of that is over.
	Trouble struct {
		*Member
		Err error
	}
	// Close is the last effect for a sink: it issues nothing more.
	Close struct{ *Member }
)

// Effects for the session.
type (
	// Wake says that NextBatch may have members to register or list.
	Wake struct{}
	// Follow has a line's folder watched, again and again until Forget.
	Follow struct{ *Line }
	// Forget ends the watch of a line for good.
	Forget struct{ *Line }
	// Unwatch ends the open watch of a line. The next one opens after about Pause; 0 stands for the
	// pause after a failure.
	Unwatch struct {
		*Line
		Pause time.Duration
	}
	// AskProgress asks the open watch of a line how far it has told. Whoever asks waits for Timeout
	// at most.
	AskProgress struct {
		*Line
		Timeout time.Duration
	}
	// Log writes an entry to the log.
	Log struct {
		Level slog.Level
		Text  string
		Args  []any
	}
)
