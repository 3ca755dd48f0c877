package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	// maxBody bounds a request's body, in bytes.
	maxBody = 4096
	// maxWaitBound is the longest max_wait.
	maxWaitBound = time.Minute
)

// request is the body of a call for permits, checked.
type request struct {
	provider string
	permits  int64
	maxWait  time.Duration
	class    consumer.Class
	key      string // empty: none
}

// parseRequest reads a body. Its errors name the wrong value and its bounds, for the
// caller.
func parseRequest(body []byte) (request, error) {
	raw := struct {
		Provider string         `json:"provider"`
		Permits  int64          `json:"permits"`
		MaxWait  float64        `json:"max_wait"`
		Class    consumer.Class `json:"class"`
		Key      string         `json:"key"`
	}{Permits: 1, Class: consumer.Default}
	if err := decode(body, &raw, `{"provider": "payments/charge", "permits": 1, "max_wait": 0.2}`); err != nil {
		return request{}, err
	}
	r := request{raw.Provider, raw.Permits, time.Duration(math.Round(raw.MaxWait * float64(time.Second))), raw.Class, raw.Key}
	if err := quota.ValidateProvider(r.provider); err != nil {
		return request{}, err
	}
	if r.permits < 1 || r.permits > quota.MaxPermits {
		return request{}, fmt.Errorf("permits is %d: must be from 1 to %d", r.permits, quota.MaxPermits)
	}
	if r.class != consumer.Critical && r.class != consumer.Default && r.class != consumer.Sheddable {
		return request{}, fmt.Errorf("class is %.20q: must be critical, default or sheddable", r.class)
	}
	if r.key != "" {
		if err := protocol.ValidateKey(r.key); err != nil {
			return request{}, err
		}
	}
	if raw.MaxWait < 0 || raw.MaxWait > maxWaitBound.Seconds() { // JSON has no NaN
		return request{}, fmt.Errorf("max_wait is %v: must be from 0 to %v seconds", raw.MaxWait, maxWaitBound.Seconds())
	}
	return r, nil
}

// parseUsed reads the body of a lease's return: the permits of n that were used.
func parseUsed(body []byte, n int64) (int64, error) {
	raw := struct {
		Used *int64 `json:"used"`
	}{}
	if err := decode(body, &raw, `{"used": 3}`); err != nil {
		return 0, err
	}
	if raw.Used == nil {
		return 0, errors.New(`used is missing: send such as {"used": 3}`)
	}
	if *raw.Used < 0 || *raw.Used > n {
		return 0, fmt.Errorf("used is %d: must be from 0 to %d, the permits of the lease", *raw.Used, n)
	}
	return *raw.Used, nil
}

// decode reads one JSON object without unknown fields.
func decode(body []byte, to any, example string) error {
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
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = fmt.Errorf("%s is a JSON %s", cmp.Or(strings.TrimPrefix(wrong.Field, "."), "it"), wrong.Value)
	}
	if err != nil {
		err = errors.New(strings.TrimPrefix(err.Error(), "json: "))
		return fmt.Errorf("the body is not as expected (%w): send JSON such as %s", err, example)
	}
	return nil
}
