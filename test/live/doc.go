// Package live tests fleets of real instances under load, in one process and with a real
// etcd: what the model of test/histories and the fake time of test/hours
// cannot show.
package live
