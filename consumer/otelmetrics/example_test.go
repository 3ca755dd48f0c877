package otelmetrics_test

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// traced returns options by which each wait is a span in its caller's trace.
func traced(tracer trace.Tracer) consumer.Options {
	return consumer.Options{OnWait: func(ctx context.Context, d time.Duration, err error) {
		now := time.Now()
		_, span := tracer.Start(ctx, "quotient.wait", trace.WithTimestamp(now.Add(-d)))
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End(trace.WithTimestamp(now))
	}}
}

func Example_trace() {
	spans := tracetest.NewInMemoryExporter()
	tracer := sdk.NewTracerProvider(sdk.WithSyncer(spans)).Tracer("payments")
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 1, Window: 100 * time.Millisecond}}}

	ctx, root := tracer.Start(context.Background(), "charge")
	limiter, err := consumer.Open(ctx, consumer.Fixed(policy), "payments/charge", traced(tracer))
	if err != nil {
		fmt.Println(err)
		return
	}
	for len(spans.GetSpans()) == 0 { // until a call has to wait
		if err := limiter.Acquire(ctx, time.Second); err != nil {
			fmt.Println(err)
			return
		}
	}
	root.End()

	all := spans.GetSpans()
	wait, charge := all[0], all[1]
	fmt.Println(wait.Name, "in", charge.Name, wait.Parent.Equal(charge.SpanContext))
	fmt.Println("took time:", wait.EndTime.After(wait.StartTime))
	// Output:
	// quotient.wait in charge true
	// took time: true
}
