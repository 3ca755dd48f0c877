// Package histories attacks the code that ships. Real sessions of package coordinator, real
// limiters of package consumer and etcd's real client run in the fake time of
// testing/synctest. Behind the client's connection is a model of etcd.
//
// One seed is one history of a kind (plan_test.go). The model delays, loses and holds back
// what goes between an instance and etcd. The world (happen_test.go) sets clocks apart,
// suspends machines, and stops and kills processes. It changes policies, lets a
// stranger write and the provider ask for pauses, and puts back a backup. The judge adds
// up the permits of every window and compares them with docs/proof/protocol.md. After the last
// fault the whole limit must be used (judge_test.go). Mutants, which are patches of the
// code that ships, show that the judge sees. Their histories are led by a drama: a few
// events that show a missing rule only together (drama_test.go).
//
// With -exact, two runs of one seed are the same (exact_test.go). Without it, events of
// one instant come in the order that the scheduler chooses. A verdict is true all the
// same; TestReplay prints what went to and fro.
package histories
