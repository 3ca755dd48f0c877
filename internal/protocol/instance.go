package protocol

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// MaxInstances bounds the instances of a provider, and the keys of a folder that anybody reads.
const MaxInstances = 1 << 17

// ErrTooMany is a folder with more keys than an instance or an operator keeps.
var ErrTooMany = fmt.Errorf("there are more than %d keys: they are not read until they are fewer", MaxInstances)

// Instance is one incarnation of a consumer process, as its key in etcd says.
type Instance struct {
	// ID is the incarnation: never used twice, also not by the same process.
	// It is the last part of the key, not in the value.
	ID      string `json:"-"`
	Name    string `json:"name"` // chosen by the operator or the host name; not unique
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Version string `json:"version,omitempty"`
	// Attempt counts the earlier attempts to write this, whose answers may have been
	// lost. No two attempts write the same value.
	Attempt int       `json:"attempt,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// From is the instance's beginning: it has a share of the windows that start at or
	// after it. Zero: all.
	From time.Time `json:"from,omitzero"`
	// Until is the instance's end: it has no share of the windows that start at or after
	// it. Zero: no end is announced.
	Until time.Time `json:"until,omitzero"`
	// First is set if nobody else could issue permits when the instance registered: it has
	// the windows that start after that, and no From.
	First bool `json:"first,omitempty"`
	// Borrows is set if the instance uses loans of others until From.
	Borrows bool `json:"borrows,omitempty"`
}

// MaxNameBytes bounds an instance's name, host and version.
const MaxNameBytes = 128

// Validate returns all that is wrong with the instance, as joined errors, or nil. An
// instance may end at the instant at which it begins: one that leaves while it joins never
// takes part.
func (i *Instance) Validate() error {
	var errs problems
	for _, f := range [...]struct{ field, text string }{{"name", i.Name}, {"host", i.Host}, {"version", i.Version}} {
		errs.add(len(f.text) > MaxNameBytes, "%s: %d bytes are more than the most, %d", f.field, len(f.text), MaxNameBytes)
		errs.add(!utf8.ValidString(f.text), "%s: is not valid UTF-8", f.field)
	}
	for _, f := range [...]struct {
		field string
		at    time.Time
	}{{"started", i.Started}, {"from", i.From}, {"until", i.Until}} {
		errs.add(!f.at.IsZero() && !dated(f.at), "%s: %v must lie in the years 1970 to 2199", f.field, f.at)
	}
	errs.add(!i.Until.IsZero() && i.Until.Before(i.From), "until: %v lies before from, %v: an instance ends after it begins", i.Until, i.From)
	return errors.Join(errs...)
}
