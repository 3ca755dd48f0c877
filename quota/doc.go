// Package quota is the vocabulary of Quotient: limits, policies, instances
// and reports, their text and JSON forms, and what makes them valid.
//
// It imports the standard library only, so every other package, and every
// application, may depend on it. Nothing in it does I/O or reads a clock; all
// values are safe to share between goroutines as long as nobody changes them.
package quota
