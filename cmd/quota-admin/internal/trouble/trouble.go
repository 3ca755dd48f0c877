// Package trouble says what is wrong with the instances of a fleet, in as few
// lines as that takes.
package trouble

import "fmt"

// List collects troubles. What many instances have in common, as all do when etcd
// or the policy is away, is one line. The zero List is empty.
type List struct {
	order []string // as first met, so that lines do not change places
	who   map[string][]string
}

// Found adds what was found to be wrong with an instance; empty is nothing.
func (l *List) Found(incarnation, trouble string) {
	if trouble == "" {
		return
	}
	if l.who[trouble] == nil {
		if l.who == nil {
			l.who = map[string][]string{}
		}
		l.order = append(l.order, trouble)
	}
	l.who[trouble] = append(l.who[trouble], incarnation)
}

// Said adds what an instance says of itself; empty is nothing.
func (l *List) Said(incarnation, trouble string) {
	if trouble != "" {
		l.Found(incarnation, "it says: "+trouble)
	}
}

// Lines returns a line for each trouble; never nil, so that it is a list in JSON.
func (l *List) Lines() []string {
	lines := make([]string, 0, len(l.order))
	for _, trouble := range l.order {
		subject := "instance " + l.who[trouble][0]
		if n := len(l.who[trouble]); n > 1 {
			subject += fmt.Sprintf(" and %d more", n-1)
		}
		lines = append(lines, subject+": "+trouble)
	}
	return lines
}

// Len returns how many lines there are.
func (l *List) Len() int { return len(l.order) }
