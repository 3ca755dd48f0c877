//go:build !load

package hours_test

// long says that hours may be played, and larger fleets, for minutes of real time;
// -tags load sets it.
const long = false
