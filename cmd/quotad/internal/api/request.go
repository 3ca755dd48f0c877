package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/cli/commandline"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	// maxBody bounds a request's body, in bytes.
	maxBody = 4096
	// maxWaitBound is the longest max_wait.
	maxWaitBound = time.Minute
	// maxSettle is the longest settle_within. A provider stays open for longer: see the flag
	// --idle.
	maxSettle = 2 * time.Minute
	// maxWants bounds the wants of a call.
	maxWants = 16
)

// request is the body of a call for permits, checked.
type request struct {
	wants   []want // one at least
	maxWait time.Duration
	class   consumer.Class
	label   string // empty: none
	partial bool   // fewer permits than wanted are welcome
	// named asks for an ID, which ends with the permits' window and not before settleWithin.
	named        bool
	settleWithin time.Duration
}

// want is a number of permits of a provider, or of one of its keys.
type want struct {
	provider string
	key      string // empty: none
	permits  int64
}

// rawWant is a want as it is sent.
type rawWant struct {
	Provider string        `json:"provider"`
	Key      string        `json:"key"`
	Permits  number[int64] `json:"permits"`
}

// number is a number, if one is given.
type number[T int64 | float64] struct {
	n     T
	given bool
}

// UnmarshalJSON reads a number. A null is an error, as clients send it for None and undefined: it would be taken for none
// given. Errors have what was sent, such as "NaN": JSON has no such number, and clients send its name.
func (n *number[T]) UnmarshalJSON(text []byte) error {
	n.given = true
	if bytes.Equal(text, []byte("null")) || json.Unmarshal(text, &n.n) != nil {
		return notA[T](text)
	}
	return nil
}

// notA returns the error for what was sent in place of a T.
func notA[T any](text []byte) error {
	const most = 40 // bytes of it are shown
	if len(text) > most {
		text = append(text[:most:most], "..."...)
	}
	return &json.UnmarshalTypeError{Value: string(text), Type: reflect.TypeFor[T]()}
}

// parseRequest reads a body. Its errors name the wrong value and its bounds, for the
// caller.
func parseRequest(body []byte) (request, error) {
	raw := struct {
		rawWant
		Wants        []rawWant       `json:"wants"`
		MaxWait      number[float64] `json:"max_wait"`
		Class        consumer.Class  `json:"class"`
		Label        string          `json:"label"`
		Partial      bool            `json:"partial"`
		SettleWithin number[float64] `json:"settle_within"`
	}{Class: consumer.Default}
	if err := decode(body, &raw, `{"provider": "payments/charge", "permits": 1, "max_wait": 0.2}`,
		"provider", "key", "permits", "wants", "max_wait", "class", "label", "partial", "settle_within"); err != nil {
		return request{}, err
	}
	r := request{class: raw.Class, label: raw.Label, partial: raw.Partial, named: raw.Partial}
	switch {
	case raw.Wants == nil:
		raw.Wants = []rawWant{raw.rawWant}
	case raw.rawWant != rawWant{}:
		return r, errors.New("wants: provider, key and permits stand within it, not beside it")
	case len(raw.Wants) == 0 || len(raw.Wants) > maxWants:
		return r, fmt.Errorf("wants has %d entries: must be from 1 to %d", len(raw.Wants), maxWants)
	case r.partial:
		return r, errors.New("partial: a call with wants takes all or nothing")
	}
	if r.class != consumer.Critical && r.class != consumer.Default && r.class != consumer.Sheddable {
		return r, fmt.Errorf("class is %.20q: must be critical, default or sheddable", r.class)
	}
	if r.label != "" {
		if err := protocol.ValidateLabel(r.label); err != nil {
			return r, err
		}
	}
	for _, one := range raw.Wants {
		w, err := one.check()
		if err != nil {
			return r, err
		}
		if slices.ContainsFunc(r.wants, func(o want) bool { return o.provider == w.provider && o.key == w.key }) {
			return r, fmt.Errorf("wants has %s twice with key %q: ask once for the sum", w.provider, w.key)
		}
		r.wants = append(r.wants, w)
	}
	var err error
	if r.maxWait, err = seconds("max_wait", raw.MaxWait.n, maxWaitBound); err == nil && raw.SettleWithin.given {
		r.named = true
		r.settleWithin, err = seconds("settle_within", raw.SettleWithin.n, maxSettle)
	}
	return r, err
}

// check returns the want, or what is wrong with it.
func (w rawWant) check() (want, error) {
	permits := int64(1)
	if w.Permits.given {
		permits = w.Permits.n
	}
	if err := quota.ValidateProvider(w.Provider); err != nil {
		return want{}, err
	}
	if permits < 1 || permits > quota.MaxPermits {
		return want{}, fmt.Errorf("permits is %d: must be from 1 to %d", permits, quota.MaxPermits)
	}
	if w.Key != "" {
		if err := protocol.ValidateKey(w.Key); err != nil {
			return want{}, err
		}
	}
	return want{w.Provider, w.Key, permits}, nil
}

// seconds returns a time of at most so much.
func seconds(name string, value float64, most time.Duration) (time.Duration, error) {
	if value < 0 || value > most.Seconds() { // JSON has no NaN
		return 0, fmt.Errorf("%s is %v: must be from 0 to %v seconds", name, value, most.Seconds())
	}
	return time.Duration(math.Round(value * float64(time.Second))), nil
}

// costs are the numbers of used: one, or one for each want.
type costs []int64

// UnmarshalJSON reads a number, or a list of numbers.
func (c *costs) UnmarshalJSON(text []byte) error {
	all := []json.RawMessage{text}
	if text[0] == '[' {
		_ = json.Unmarshal(text, &all) // the decoder has read it
	}
	for _, text := range all {
		var one number[int64]
		if one.UnmarshalJSON(text) != nil {
			return notA[costs](text)
		}
		*c = append(*c, one.n)
	}
	return nil
}

// parseUsed reads the body of a settlement: a cost for each of so many wants.
func parseUsed(body []byte, wants int) ([]int64, error) {
	raw := struct {
		Used costs `json:"used"`
	}{}
	if err := decode(body, &raw, `{"used": 3}`, "used"); err != nil {
		return nil, err
	}
	switch {
	case len(raw.Used) == 0:
		return nil, errors.New(`used is missing: send such as {"used": 3}`)
	case len(raw.Used) != wants:
		return nil, fmt.Errorf("used has %d numbers: must have %d, one for each want", len(raw.Used), wants)
	}
	for _, n := range raw.Used {
		if n < 0 || n > quota.MaxPermits {
			return nil, fmt.Errorf("used is %d: must be from 0 to %d", n, quota.MaxPermits)
		}
	}
	return raw.Used, nil
}

// decode reads one JSON object that has no other fields than these.
func decode(body []byte, to any, example string, fields ...string) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(to)
	if errors.Is(err, io.EOF) {
		err = errors.New("it is empty")
	}
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the object")
		}
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" { // users of a client write no JSON
		return fmt.Errorf("%s: %s given, must be %s", strings.TrimPrefix(wrong.Field, "rawWant."), wrong.Value, kindOf(wrong))
	} else if ok {
		err = fmt.Errorf("it is a JSON %s", wrong.Value)
	}
	if err != nil {
		err = errors.New(strings.TrimPrefix(err.Error(), "json: "))
		if name, unknown := strings.CutPrefix(err.Error(), "unknown field "); unknown {
			if near := commandline.Near(strings.Trim(name, `"`), fields); len(near) > 0 {
				err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(near, " or "))
			}
		}
		return fmt.Errorf("the body is not as expected (%w): send JSON such as %s", err, example)
	}
	return nil
}

// kindOf says what a field must be.
func kindOf(wrong *json.UnmarshalTypeError) string {
	switch wrong.Type.Kind() {
	case reflect.Slice:
		if wrong.Type == reflect.TypeFor[costs]() {
			return fmt.Sprintf("a whole number from 0 to %d, or a list of them", quota.MaxPermits)
		}
		return `a list, such as [{"provider": "payments/charge", "permits": 1}]`
	case reflect.Struct:
		return `an object, such as {"provider": "payments/charge", "permits": 1}`
	case reflect.Float64:
		most := maxWaitBound
		if wrong.Field == "settle_within" {
			most = maxSettle
		}
		return fmt.Sprintf("a number of seconds from 0 to %v", most.Seconds())
	case reflect.Int64:
		return fmt.Sprintf("a whole number from 1 to %d", quota.MaxPermits)
	case reflect.Bool:
		return "true or false"
	default:
		return "a text"
	}
}
