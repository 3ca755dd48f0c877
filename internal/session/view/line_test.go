package view

import (
	"testing"

	"github.com/quotient-limiter/quotient/internal/clock"
)

const cluster = 77

func at(mono int64) clock.Instant { return clock.Instant{Mono: mono, Wall: mono} }

func begun() *Line {
	var l Line
	l.Begin(10, cluster)
	return &l
}

func TestProofNeedsTheWatchToHaveDeliveredTheRevisionRead(t *testing.T) {
	l := begun()
	if _, ok := l.Proof(); ok {
		t.Fatal("a beginning alone proves nothing")
	}
	p := l.Sent(at(100))
	if l.WentBack(p, 12, cluster) {
		t.Fatal("a gap?")
	}
	l.Answer(p, 12)
	if _, ok := l.Proof(); ok || !l.Behind() {
		t.Error("proved although the watch has not delivered revision 12")
	}
	l.Progress(11)
	if _, ok := l.Proof(); ok {
		t.Error("proved at position 11 of 12")
	}
	l.Progress(12)
	if proof, ok := l.Proof(); !ok || proof != at(100) || l.Behind() {
		t.Errorf("proof %v, %v; want the instant at which the read was sent", proof, ok)
	}
	// Answers in any order: the newest counts.
	old, young := l.Sent(at(200)), l.Sent(at(300))
	l.Answer(young, 12)
	l.Answer(old, 12)
	if proof, _ := l.Proof(); proof != at(300) {
		t.Errorf("proof %v, want 300", proof)
	}
}

func TestAStoreThatGoesBackwardsIsAGap(t *testing.T) {
	l := begun()
	p := l.Sent(at(1))
	if !l.WentBack(p, 9, cluster) {
		t.Error("revision 9 after 10 was taken as usual")
	}
	if !l.WentBack(p, 10, cluster+1) {
		t.Error("another cluster was taken as usual")
	}
	// A probe that was sent before the store was known to be further is no gap.
	p = l.Sent(at(2))
	l.Progress(20)
	if l.WentBack(p, 15, cluster) {
		t.Error("an answer that was under way was taken for a gap")
	}
}

func TestPendingAnswersAreBounded(t *testing.T) {
	l := begun()
	for i := range int64(1000) {
		l.Answer(l.Sent(at(i)), 100+i)
	}
	if len(l.pending) > maxPending {
		t.Errorf("%d answers wait", len(l.pending))
	}
	l.Progress(5000)
	if proof, _ := l.Proof(); proof != at(999) {
		t.Errorf("proof %v, want the newest", proof)
	}
}
