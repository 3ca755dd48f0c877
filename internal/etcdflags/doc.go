// Package etcdflags gives a command the flags by which it reaches etcd, spelled
// as etcdctl spells them, and makes the client that they describe.
//
// Each flag can also be set in the environment: --endpoints by
// QUOTIENT_ENDPOINTS, --dial-timeout by QUOTIENT_DIAL_TIMEOUT and so on. A flag
// wins over the environment, and the environment over the default. A password
// is never taken from an argument, which every user of the machine can read: it
// comes from QUOTIENT_PASSWORD, from a file, or from a prompt.
package etcdflags
