package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/quotient-limiter/quotient/internal/child"
)

// crew is a worker as its parent sees it.
type crew struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startCrews starts the workers of a fleet of n.
func startCrews(n int, endpoints []string, o options) (crews []*crew, err error) {
	defer func() {
		if err != nil {
			endCrews(crews)
			crews = nil
		}
	}()
	for i, first := 0, 0; i < o.processes; i++ {
		s := setup{
			Endpoints: endpoints, First: first, Size: (n*(i+1))/o.processes - first, PerClient: o.perClient, Limiters: o.limiters,
			TTL: o.ttl, Probe: o.probe, Patience: o.patience, Spread: o.spread,
		}
		first += s.Size
		if s.Size == 0 {
			continue
		}
		if o.logs != "" {
			s.Log = filepath.Join(o.logs, fmt.Sprintf("fleet-%d-%d.log", n, i))
		}
		if o.profile != "" {
			s.Profile = filepath.Join(o.profile, fmt.Sprintf("storm-%d-%d.pprof", n, i))
		}
		text, err := json.Marshal(s)
		if err != nil {
			return crews, err
		}
		c := &crew{}
		if c.cmd, err = child.Command(workerVariable, string(text)); err != nil {
			return crews, err
		}
		if c.in, err = c.cmd.StdinPipe(); err != nil {
			return crews, err
		}
		out, err := c.cmd.StdoutPipe()
		if err != nil {
			return crews, err
		}
		c.out = bufio.NewReader(out)
		if err := c.cmd.Start(); err != nil {
			return crews, err
		}
		crews = append(crews, c)
	}
	return crews, nil
}

// endCrews ends the workers without notice: their leases clean up.
func endCrews(crews []*crew) {
	for _, c := range crews {
		_ = c.in.Close()
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

// ask gives all workers an order and sums up their answers.
func ask(crews []*crew, o order) (sum answer, err error) {
	line, err := json.Marshal(o)
	if err != nil {
		return sum, err
	}
	answers, errs := make([]answer, len(crews)), make([]error, len(crews))
	var all sync.WaitGroup
	for i, c := range crews {
		all.Go(func() {
			if _, errs[i] = c.in.Write(append(line, '\n')); errs[i] != nil {
				return
			}
			var text []byte
			if text, errs[i] = c.out.ReadBytes('\n'); errs[i] != nil {
				return
			}
			if errs[i] = json.Unmarshal(text, &answers[i]); errs[i] == nil && answers[i].Err != "" {
				errs[i] = errors.New(answers[i].Err)
			}
		})
	}
	all.Wait()
	for _, a := range answers {
		sum.Registered, sum.Ready = append(sum.Registered, a.Registered...), append(sum.Ready, a.Ready...)
		sum.Applied = append(sum.Applied, a.Applied...)
		sum.Retries += a.Retries
		sum.Listings += a.Listings
		sum.CPU += a.CPU
		sum.Resident += a.Resident
		sum.Events += a.Events
		sum.Applying += a.Applying
	}
	return sum, errors.Join(errs...)
}
