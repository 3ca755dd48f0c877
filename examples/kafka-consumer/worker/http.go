package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// MaxRetryAfter bounds the pause that a provider can ask for: a mistake on its
// side does not stop the consumers for a day.
const MaxRetryAfter = 5 * time.Minute

// defaultRetryAfter is for a 429 or 503 that names no time.
const defaultRetryAfter = time.Second

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 10

// HTTP returns a Call that posts each record's value to the URL, with the
// idempotency key topic/partition/offset. 2xx means processed. 429 and 503 drain
// the limiter for what Retry-After says. 400, 409, 413, 415, 422 and 500 are taken
// as a rejection of the record. All else is tried again: a wrong password (401)
// must not send a topic to the dead letters. It makes one record a call: it needs
// Config.Batch 1.
func HTTP(client *http.Client, url string) Call {
	return func(ctx context.Context, records []*kgo.Record) Answer {
		r := records[0]
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(r.Value))
		if err != nil {
			return Answer{Err: err}
		}
		request.Header.Set("Content-Type", "application/octet-stream")
		request.Header.Set("Idempotency-Key", fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset))
		response, err := client.Do(request)
		if err != nil {
			return Answer{Err: err}
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		if err != nil {
			return Answer{Err: err}
		}
		return Judge(response, body, 1, time.Now())
	}
}

// Judge turns an HTTP answer to a call with n records into an Answer.
func Judge(response *http.Response, body []byte, n int, now time.Time) Answer {
	code := response.StatusCode
	reason := strings.TrimSpace(response.Status + " " + string(body))
	switch code {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		d, ok := retryAfter(response.Header.Get("Retry-After"), now)
		if !ok {
			d = defaultRetryAfter
		}
		return Answer{Err: errors.New(reason), RetryAfter: d}
	case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity, http.StatusInternalServerError:
		a := Answer{Reason: reason}
		for i := range n {
			a.Rejected = append(a.Rejected, i)
		}
		return a
	}
	if code/100 == 2 {
		return Answer{}
	}
	return Answer{Err: errors.New(reason)}
}

// retryAfter reads a Retry-After field in either form, seconds or a date,
// bounded by MaxRetryAfter. ok is false if it is neither.
func retryAfter(field string, now time.Time) (d time.Duration, ok bool) {
	if seconds, err := strconv.ParseUint(field, 10, 63); err == nil {
		return time.Duration(min(seconds, uint64(MaxRetryAfter/time.Second))) * time.Second, true
	} else if errors.Is(err, strconv.ErrRange) {
		return MaxRetryAfter, true
	}
	at, err := http.ParseTime(field)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter), true
}
