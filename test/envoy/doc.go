// Package envoy runs real Envoys behind quotad. Its test has the build tag e2e, and the
// environment variable QUOTIENT_TEST_ENVOY names the envoy binary.
package envoy
