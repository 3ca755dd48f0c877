// Package peers holds what Quotient is compared with inside one process: Go's
// rate limiters, and the algorithm that LINE described for its own.
//
// They promise different things. Token buckets and leaky buckets bound a rate,
// not what a window of the provider's holds; none of them but LINE's is aligned
// to the wall clock, and none shares a limit with other processes.
package peers
