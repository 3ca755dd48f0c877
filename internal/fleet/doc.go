// Package fleet tests fleets of real instances, in one process and with a real
// etcd, under load. Its only code beside tests is a network link that tests can
// hold and cut.
package fleet
