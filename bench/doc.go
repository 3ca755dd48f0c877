// Package bench measures Quotient beside what people use instead. Its benchmarks are
// ordinary ones, with metrics of their own, and benchstat reads what they print;
// README.md has the commands, and docs/proof/bench.md the results.
//
// It is a module of its own, so that what it compares with reaches nobody else.
package bench
