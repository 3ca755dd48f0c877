// Bench measures Quotient side by side with what people use instead, on the
// machine that it runs on, and writes RESULTS.md, RESULTS.txt and charts.
//
//	go run .          everything, about ten minutes
//	go run . --quick  less of everything, less than a minute, nothing written
//
// It is a module of its own, so that what it compares with reaches nobody else.
package main
