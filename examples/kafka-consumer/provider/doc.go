// Package provider is the other side of the demonstration: an HTTP service with
// a limit, which counts on its own clock what reaches it. It knows nothing of
// Quotient.
package provider
