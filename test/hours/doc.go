// Package hours tests what sessions do over minutes and hours: a real etcd
// server and real sessions in the fake time of testing/synctest. It consists of
// tests.
package hours
