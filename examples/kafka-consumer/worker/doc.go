// Package worker turns the records of a Kafka topic into calls to a provider
// whose rate is limited: every record at least once, none skipped, and the
// member stays in its group however long it waits for permits.
//
// The pattern, made to be copied:
//
//   - The poll loop never waits for a permit. It hands records over, pauses the
//     partitions whose backlog is full, and polls again, so the group can
//     rebalance at any time.
//   - A bounded set of workers takes records from the backlogs. A worker waits
//     for its permits (consumer.Limiter.Take), and calls as soon as it has them.
//   - A partition's offset is committed up to its lowest unfinished record. What
//     a crash leaves unfinished is done again, by whoever gets the partition.
//   - A partition that is revoked gives back what waits for permits, finishes
//     the calls under way, commits, and only then is handed over.
//   - A record that the provider rejects again and again goes to a dead-letter
//     topic, and counts as finished once it is there.
//   - A provider that asks for a pause (429 with Retry-After) gets it: the
//     limiter is drained.
//
// The pure parts are tracker (which offset may be committed) and backlog (what
// is to be done next in one partition, and when fetching pauses). Member is the
// shell around them: one goroutine that polls, Config.Workers that call, and the
// callbacks of the Kafka client.
//
// Locks. Member.mu guards the partitions and all that is in them. It is held for
// moments only: never during a call, a wait for permits or a request to Kafka.
// The client's own locks are taken under it (pausing, marking offsets), so the
// client's callbacks must not be called with it held; they are not.
package worker
