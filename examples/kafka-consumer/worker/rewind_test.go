package worker

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quotient-limiter/quotient/consumer"
)

// fetched is what a poll returns of one partition.
func fetched(epoch int32, offsets ...int64) kgo.Fetches {
	p := kgo.FetchPartition{Partition: 0}
	for _, o := range offsets {
		p.Records = append(p.Records, &kgo.Record{Topic: topic, Offset: o, LeaderEpoch: epoch})
	}
	return kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: topic, Partitions: []kgo.FetchPartition{p}}}}}
}

// A log that was rewound (an unclean election of a leader) holds other records
// under offsets that were seen before: they are processed, and what is finished
// of the old ones no longer counts for what is committed.
func TestRewoundLogIsBegunAnew(t *testing.T) {
	t.Parallel()
	m, err := New(Config{
		Group: group, Topic: topic, DeadLetters: letters, Limiter: new(consumer.Limiter),
		Call: func(context.Context, []*kgo.Record) Answer { return Answer{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	m.calls, m.Kafka = t.Context(), []kgo.Opt{kgo.SeedBrokers("127.0.0.1:1")} // nobody is there
	if m.client, err = m.join(); err != nil {
		t.Fatal(err)
	}
	defer m.client.Close()
	m.assigned(t.Context(), m.client, map[string][]int32{topic: {0}})

	m.handOver(fetched(1, 10, 11))
	old, _ := m.take()
	m.handOver(fetched(2, 5, 6))
	m.finish(old.part, old.items)
	old.part.jobs.Done()
	if marked := m.client.MarkedOffsets(); len(marked) > 0 {
		t.Errorf("%v is to be committed, after the log was rewound", marked)
	}
	for _, want := range []int64{5, 6} {
		j, _ := m.take()
		if got := j.items[0].record.Offset; got != want {
			t.Fatalf("record %d came, want %d", got, want)
		}
		m.finish(j.part, j.items)
		j.part.jobs.Done()
		if got := m.client.MarkedOffsets()[topic][0]; got.Offset != want+1 || got.Epoch != 2 {
			t.Errorf("%+v is to be committed, want offset %d of epoch 2", got, want+1)
		}
	}
}
