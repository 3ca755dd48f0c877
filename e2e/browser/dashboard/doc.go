// Package dashboard holds tests of quota-admin's dashboard in a real browser,
// against a real etcd and real instances.
//
// They need build tag e2e and chromium in the path. `make screenshots` keeps what
// they see.
package dashboard
