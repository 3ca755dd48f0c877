// Package share turns views into shares: how many permits of a window one
// instance may issue.
//
// [Of] is the exact split of one total among the instances of one
// view. [History] adds the settle rule: an instance may issue the smallest of its
// shares by every view that it held from S before the window's start until now. So
// a share shrinks at once and grows only at a window's start, S after the reason.
// docs/proof/protocol.md proves that the permits of all instances then sum to at most the
// total.
//
// Everything here is integer arithmetic on values that the caller gives. Nothing reads
// a clock, starts a goroutine, or depends on the order of a map or on the platform. For
// instances of different builds must agree on every share to the permit.
package share
