// Package differential compares the functions that ship with the definitions that the proof is
// about. proof/Extract.v makes a program of these, which answers questions.
//
//	go test ./internal/test/differential                      the recorded answers
//	go test ./internal/test/differential -model PROGRAM       a random seed, live
//	go test ./internal/test/differential -model PROGRAM -record
//
// proof/check builds the program, plays a random seed, and sees that the recorded answers are
// still those of the proof.
package differential
