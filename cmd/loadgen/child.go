package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/quotient-limiter/quotient/internal/load"
)

// roleVariable says, in the environment, that this process is a child and which.
const roleVariable = "QUOTIENT_LOADGEN_CHILD"

// The children of a run.
const (
	roleWorker   = "worker"   // instances of the fleet
	roleProvider = "provider" // the API that they call
)

// obedient is what a child is: it does what the parent orders. An error ends it.
type obedient interface{ obey(o order) error }

// runIfChild turns this process into a child, and does not return, if it was
// started as one. It comes first of all.
func runIfChild() {
	role, ok := os.LookupEnv(roleVariable)
	if !ok {
		return
	}
	// A terminal's Ctrl-C is for the parent, which then ends us.
	signal.Ignore(os.Interrupt)
	if err := serveChild(role, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "loadgen: %s %d: %v\n", role, os.Getpid(), err)
		os.Exit(exitCannot)
	}
	os.Exit(exitHeld)
}

// serveChild obeys orders until the parent has no more, or is gone.
func serveChild(role string, orders io.Reader, reports io.Writer) error {
	out := &lineWriter{w: reports}
	// A parent that is gone hears nothing; the end of its orders says so too.
	tell := func(r report) { _ = out.write(r) }
	var me obedient
	err := eachLine(orders, func(line []byte) error {
		o, err := parseOrder(line)
		switch {
		case err != nil:
			return err
		case me != nil:
			return me.obey(o)
		case o.Setup == nil:
			return fmt.Errorf("line %.80q: not set up yet", line)
		}
		me, err = newChild(role, o.Setup, tell)
		return err
	})
	if err != nil {
		tell(report{Failed: err.Error()})
	}
	return err
}

func newChild(role string, s *setup, tell func(report)) (obedient, error) {
	switch role {
	case roleProvider:
		return startProvider(s, tell)
	case roleWorker:
		client, err := s.Etcd.client(context.Background())
		if err != nil {
			return nil, err
		}
		file, err := newCountFile(s.Counts, func(err error) { tell(report{Failed: err.Error()}) })
		if err != nil {
			return nil, err
		}
		return newWorker(s, client, file.room, tell)
	}
	return nil, fmt.Errorf("no child is a %q", role)
}

// memory is room for the counts of a worker in this process.
func memory() *load.Block { return new(load.Block) }
