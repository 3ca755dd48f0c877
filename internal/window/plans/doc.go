// Package plans has the words of what may be issued: a Plan says how many permits one instance may issue of each
// limit, in which windows, and until when that holds. Package share makes plans of views. The gate of package
// window and the accounts of keys obey them.
//
// A plan never changes, so that it is safe for concurrent use; news makes another one. Instants are monotonic
// nanoseconds, unless they are said to be of corrected wall time, which is the monotonic instant plus the plan's
// offset.
package plans
