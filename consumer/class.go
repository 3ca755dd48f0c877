package consumer

import (
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// Class is the class of a call. While a call of a class waits, none of a lower class is
// served. Calls of one class are served in the order in which they came. That holds for those that
// wait for a Key, too. The zero Class is Default.
//
// A policy can keep a part of each share for critical calls: see quota.Release.Critical.
type Class string

// The classes, the highest first.
const (
	Critical  Class = "critical"
	Default   Class = "default"
	Sheddable Class = "sheddable"
)

// classes are all classes, by their number in the gate.
var classes = [queue.Classes]Class{Critical, Default, Sheddable}

// inside returns the class's number in the gate.
func (c Class) inside() queue.Class {
	switch c {
	case Critical:
		return queue.Critical
	case Sheddable:
		return queue.Sheddable
	}
	return queue.Default
}

// Class returns the handle of this limiter whose calls have the class; one of an unknown
// class is that of Default. All handles have one counter and one queue. A handle costs
// nothing and needs no Close: closing one of them closes the limiter.
// The handle keeps the label: see Label.
func (l *Limiter) Class(c Class) *Limiter {
	if l.label != nil {
		return l.with(c.inside(), l.label, l.bad)
	}
	return &l.all.by[c.inside()]
}

// counted notes that n permits were issued to calls of a class and label. Those of Default
// without a label are all others, so that the most frequent call does not count twice.
func (o *origin) counted(n int64) {
	if o.class != queue.Default || o.label != nil {
		o.count(n)
	}
}

// count is apart from counted, so that the latter is inlined.
func (o *origin) count(n int64) {
	if o.class != queue.Default {
		o.core.refused.issued[o.class].Add(n)
	}
	o.labelled(n, 0)
}

// refused notes that n permits were refused for a reason.
func (o *origin) refused(r *refusal, n int64) {
	if r.count.Add(n); r.segment.Leaves(n) {
		o.core.refused.large.Add(n)
	}
	o.labelled(0, n)
}

// called returns how many permits calls of a class wanted that wait no more.
func (k *core) called(c queue.Class) int64 { return k.refused.issued[c].Load() + k.refused.sumOf(c) }

// tell adds the uses by class to a status.
func (k *core) tell(st *Status, use *window.Usage) {
	st.IssuedBy, st.RefusedOf, st.WaitingBy = map[Class]int64{}, map[Class]int64{}, map[Class]int{}
	rest := use.Issued
	for i, c := range classes {
		st.IssuedBy[c], st.RefusedOf[c], st.WaitingBy[c] = k.refused.issued[i].Load(), k.refused.sumOf(queue.Class(i)), use.WaitingBy[i]+int(k.keys.lines.byClass[i].Load())
		rest -= st.IssuedBy[c]
	}
	st.IssuedBy[Default] = rest
}

// reportedClasses are the uses by class for a report; nil if all calls are of Default.
func (s *Status) reportedClasses() map[string]protocol.ClassUse {
	if s.IssuedBy[Default] == s.Issued && s.RefusedOf[Default] == s.Refused && s.WaitingBy[Critical]+s.WaitingBy[Sheddable] == 0 {
		return nil
	}
	all := map[string]protocol.ClassUse{}
	for _, c := range classes {
		all[string(c)] = protocol.ClassUse{Issued: s.IssuedBy[c], Refused: s.RefusedOf[c], Waiting: int64(s.WaitingBy[c])}
	}
	return all
}
