package worker

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Headers of a dead letter, beside the record's own: where it came from, and why
// it is here.
const (
	HeaderTopic     = "dead-letter-topic"
	HeaderPartition = "dead-letter-partition"
	HeaderOffset    = "dead-letter-offset"
	HeaderAttempts  = "dead-letter-attempts"
	HeaderReason    = "dead-letter-reason"
)

// maxReason bounds what a provider's answer adds to a dead letter.
const maxReason = 1000

// deadLetter is the record for the dead-letter topic.
func (m *Member) deadLetter(it *item) *kgo.Record {
	r := it.record
	number := func(n int64) []byte { return strconv.AppendInt(nil, n, 10) }
	reason := it.reason[:min(len(it.reason), maxReason)]
	return &kgo.Record{
		Topic: m.DeadLetters, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp,
		Headers: append(append([]kgo.RecordHeader(nil), r.Headers...),
			kgo.RecordHeader{Key: HeaderTopic, Value: []byte(r.Topic)},
			kgo.RecordHeader{Key: HeaderPartition, Value: number(int64(r.Partition))},
			kgo.RecordHeader{Key: HeaderOffset, Value: number(r.Offset)},
			kgo.RecordHeader{Key: HeaderAttempts, Value: number(int64(it.rejected))},
			kgo.RecordHeader{Key: HeaderReason, Value: []byte(reason)}),
	}
}

// bury writes items to the dead-letter topic. Only what Kafka has acknowledged
// is finished; the rest is to be tried again.
func (m *Member) bury(ctx context.Context, dead []*item) (written, unwritten []*item) {
	for _, it := range dead {
		// The call's own time may be over.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.CallTimeout)
		err := m.client.ProduceSync(ctx, m.deadLetter(it)).FirstErr()
		cancel()
		if err != nil {
			m.Logger.Warn("writing a dead letter", "topic", m.DeadLetters, "offset", it.record.Offset, "error", err)
			unwritten = append(unwritten, it)
			continue
		}
		m.counts.dead.Add(1)
		written = append(written, it)
	}
	return written, unwritten
}
