// Package differential compares the functions that ship with the definitions that the proof is
// about. proof/Extract.v makes a program of these, which answers questions.
//
//	go test ./test/differential                               the recorded answers
//	go test ./test/differential -model PROGRAM                new questions, and a run
//	go test ./test/differential -model PROGRAM -traces DIR    a run with --trace DIR
//	go test ./test/differential -model PROGRAM -record
//
// proof/compare makes the program, asks new questions, and sees that the recorded answers are
// still those of the proof. proof/program DIR leaves the program in DIR.
package differential
