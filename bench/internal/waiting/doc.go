// Package waiting measures those who wait for a permit: what they cost, how
// soon after a boundary they are served, and whether in their turn.
package waiting
