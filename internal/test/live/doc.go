// Package live tests fleets of real instances, in one process and with a real etcd,
// under load.
package live
