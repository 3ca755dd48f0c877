// Pictures makes the pictures of README.md, docs/pacing.md and docs/shapes.md, and
// the tables of real runs there, each from runs of the load generator:
//
//	go run -C bench ./pictures [-with COMMAND] [headline] [saturated] [bursts] [sine] [poisson] [shapes]
//
// It names the runs as it makes them. With no argument it makes all of them, one
// after the other, in eleven minutes; a machine that does other work spoils them.
package main
