// Package hotpath measures a permit that is granted, or refused, at once:
// Quotient's calls, the least that they could cost, and the peers'.
package hotpath
