// Package central measures what is usually done instead of Quotient: a counter in
// Redis that every instance asks. It starts a redis-server of its own.
package central
