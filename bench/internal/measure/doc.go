// Package measure times calls in interleaved rounds.
//
// A machine that others use too is slower in one minute than in the next. So
// every case is measured once in a round, after one another, and there are
// several rounds; a ratio is taken within a round, and the median over the
// rounds is reported. Times are of CPU, because what other processes take away
// from this one is not the fault of what is measured; the time on the wall
// stands beside it in the raw results.
package measure
