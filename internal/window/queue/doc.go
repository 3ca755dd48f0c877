// Package queue keeps the callers that wait for permits, in the order in which they are served: those of a
// provider in its gate, and those of each key in the key's line. It has the words for them too: the Class of
// a call, and the Outcome that a caller is told.
//
// It decides nothing. Its owner says who joins, who is served and who is refused, and guards the Queue with a
// lock of its own. The package reads no clock: a deadline is a monotonic instant that a caller brings.
package queue
