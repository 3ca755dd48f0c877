// Package shipped attacks the code that ships: real sessions of package coordinator, real
// limiters of package consumer and etcd's real client, in the fake time of
// testing/synctest, against a model of etcd behind the client's connection.
//
// One seed is one history of a kind (plan_test.go). The model delays, loses and holds back
// what goes between an instance and etcd. The world sets clocks apart, suspends machines,
// stops, kills and continues processes, changes policies, lets a stranger write and the
// provider ask for pauses, and puts back a backup (happen_test.go). The judge adds up the
// permits of every window and compares them with docs/protocol.md; after the last fault
// the whole limit must be used (judge_test.go). Mutants, which are patches of the code
// that ships, show that the judge sees: histories of them are led by a drama, which is a
// few events that break a rule's absence only together (drama_test.go).
//
// Two runs of one seed mostly go the same way. Where a process goes on that stood still,
// much happens at one instant, in an order that the scheduler chooses. A verdict is true
// all the same; TestReplay prints what went to and fro.
package shipped
