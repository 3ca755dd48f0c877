// Pictures makes the pictures of README.md and docs/pacing.md, and the table of
// real runs there, each from runs of the load generator:
//
//	go run ./internal/pictures [-with COMMAND] [headline] [saturated] [bursts] [sine] [poisson]
//
// It names the runs as it makes them. With no argument it makes all of them, one
// after the other, in seven minutes; a machine that does other work spoils them.
package main
