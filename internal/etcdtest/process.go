package etcdtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/internal/child"
)

// memberRole is that of a process that is a member.
const memberRole = "etcd member"

// RunIfMember turns this process into a member of a cluster, and does not
// return, if it was started as one by a Cluster with Options.Processes. Programs
// and tests that start such clusters call it first of all.
func RunIfMember() {
	child.Be(memberRole, func(c memberConfig, over <-chan struct{}, tell func(serving)) error {
		server, err := c.start()
		if err != nil {
			return err
		}
		defer server.stop()
		if err := server.ready(); err != nil {
			return err
		}
		tell(serving{})
		select {
		case <-over:
			return nil
		case err := <-server.Err():
			return err
		}
	})
}

// serving is what a member's process tells.
type serving struct{}

// process is a member in a process of its own.
type process struct {
	*child.Process
	serves func() error // returns when the member serves
}

func (p *process) ready() error { return p.serves() }

func (p *process) stop() { _ = p.Close(startTimeout) }

// startProcess starts a member. If it ends without having been told to, onExit
// is called.
func startProcess(c memberConfig, onExit func(error)) (*process, error) {
	serves := make(chan struct{})
	p, err := child.Start(memberRole, c, func(serving) { close(serves) }, onExit)
	if err != nil {
		return nil, err
	}
	return &process{p, func() error {
		select {
		case <-serves:
			return nil
		case <-p.Gone:
			return errors.New("member process ended before it was ready")
		case <-time.After(startTimeout):
			return fmt.Errorf("member process is not ready after %v", startTimeout)
		}
	}}, nil
}
