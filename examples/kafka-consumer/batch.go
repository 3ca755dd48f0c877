package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quotient-limiter/quotient/examples/kafka-consumer/provider"
	"github.com/quotient-limiter/quotient/examples/kafka-consumer/worker"
)

// maxOutcome bounds what is read of an answer.
const maxOutcome = 1 << 20

// postBatch is a Call for the embedded provider, which takes several records,
// one a line. Their values hold no line breaks.
func postBatch(client *http.Client, url string) worker.Call {
	return func(ctx context.Context, records []*kgo.Record) worker.Answer {
		values := make([][]byte, len(records))
		for i, r := range records {
			values[i] = r.Value
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(bytes.Join(values, []byte("\n")))) //nolint:gosec // the address is the operator's
		if err != nil {
			return worker.Answer{Err: err}
		}
		request.Header.Set("Content-Type", provider.NDJSON)
		response, err := client.Do(request) //nolint:gosec // the same
		if err != nil {
			return worker.Answer{Err: err}
		}
		defer response.Body.Close()
		body, err := io.ReadAll(io.LimitReader(response.Body, maxOutcome))
		if err != nil {
			return worker.Answer{Err: err}
		}
		a := worker.Judge(response, body, len(records), time.Now())
		if response.StatusCode != http.StatusOK {
			return a
		}
		var o provider.Outcome
		if err := json.Unmarshal(body, &o); err != nil {
			return worker.Answer{Err: err}
		}
		for _, i := range o.Rejected {
			if i < 0 || i >= len(records) {
				return worker.Answer{Err: fmt.Errorf("the provider rejects record %d of %d", i, len(records))}
			}
		}
		return worker.Answer{Rejected: o.Rejected, Reason: "the provider cannot process it"}
	}
}
