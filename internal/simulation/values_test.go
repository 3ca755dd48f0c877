package simulation

import (
	"encoding/json"
	"strconv"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is the values of etcd's keys. In one history of plainSeeds, and with
// every mutant, they are the JSON that etcd holds, written and read by the real
// code; in the others they are numbers under which to find what was written:
// what JSON does to a value does not depend on the history around it, and takes a
// fifth of the time.

const plainSeeds = 8

func (w *world) plain() bool { return w.mutant == nil && w.seed%plainSeeds != 0 }

// encode turns a policy, an instance or a level into a key's value. keep notes it
// under the number.
func (w *world) encode(v any, keep func(number string)) []byte {
	if w.plain() {
		w.written++
		number := strconv.Itoa(w.written)
		keep(number)
		return []byte(number)
	}
	value, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return value
}

func (w *world) policyValue(p *quota.Policy) []byte {
	return w.encode(*p, func(number string) {
		d := p.WithDefaults()
		w.policies[number] = &d
	})
}

func (w *world) instanceValue(i quota.Instance) []byte {
	return w.encode(protocol.Incarnation(i), func(number string) { w.instances[number] = i })
}

func (w *world) levelValue(l *protocol.Level) []byte {
	return w.encode(*l, func(number string) { w.levels[number] = l })
}

func (w *world) paceValue(p *protocol.Pace) []byte {
	return w.encode(*p, func(number string) { w.paces[number] = p })
}

func (w *world) readPolicy(value []byte) (*quota.Policy, error) {
	if p, ok := w.policies[string(value)]; ok {
		return p, nil
	}
	p, err := protocol.ReadPolicy(value)
	if err == nil {
		w.policies[string(value)] = p
	}
	return p, err
}

func (w *world) readInstance(id string, value []byte) (quota.Instance, error) {
	i, ok := w.instances[string(value)]
	if !ok {
		var err error
		if i, err = protocol.ReadInstance(id, value); err != nil {
			return i, err
		}
		w.instances[string(value)] = i
	}
	i.ID = id
	return i, nil
}

func (w *world) readLevel(value []byte) (*protocol.Level, error) {
	l, ok := w.levels[string(value)]
	if !ok {
		var err error
		if l, err = protocol.ReadLevel(value); err != nil {
			return nil, err
		}
		w.levels[string(value)] = l
	}
	return l, nil
}

func (w *world) readPace(value []byte) (*protocol.Pace, error) {
	p, ok := w.paces[string(value)]
	if !ok {
		var err error
		if p, err = protocol.ReadPace(value); err != nil {
			return nil, err
		}
		w.paces[string(value)] = p
	}
	return p, nil
}
