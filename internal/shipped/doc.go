// Package shipped attacks the code that ships: real sessions of package coordinator, real
// limiters of package consumer and etcd's real client, in the fake time of
// testing/synctest, against a model of etcd behind the client's connection.
//
// One seed is one history. The model delays, loses and holds back what goes between an
// instance and etcd; the world sets clocks apart, suspends machines, kills instances,
// changes limits and puts back a backup. The judge adds up the permits of every window
// and compares them with docs/protocol.md; after the last fault the whole limit must be
// used. Mutants, which are patches of the shipped code, show that the judge sees.
package shipped
