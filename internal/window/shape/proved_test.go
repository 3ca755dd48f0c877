package shape

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/testkit/extracted"
)

// TestShapesAsInTheProof compares buckets and rings with the proof's definitions (proof/Shapes.v).
func TestShapesAsInTheProof(t *testing.T) {
	t.Parallel()
	extracted.Questions{Of: "shapes", Ask: shapeQuestion}.Test(t)
}

// shapeQuestion asks about a ring or a bucket.
func shapeQuestion(seed uint64) (ask, code string) {
	r := rand.New(rand.NewPCG(seed, 10))
	if seed%3 == 0 {
		return ringQuestion(r)
	}
	return bucketQuestion(r)
}

// bucketQuestion asks what a bucket has ready, and its instant, after each of a few events: a share
// and a burst, or a take of what is ready, or of a part of it.
func bucketQuestion(r *rand.Rand) (ask, code string) {
	length := time.Duration(1+r.Int64N(600)) * 100 * time.Millisecond
	b := bucket{length: length, empty: unused}
	now, most := r.Int64N(int64(time.Hour)), 1+r.Int64N(1+r.Int64N(10_000))
	var question []string
	var answer []string
	events := 2 + r.IntN(12)
	for i := range events {
		if i > 0 {
			now += r.Int64N(1 + r.Int64N(int64(length)))
		}
		if i == 0 || r.IntN(3) == 0 {
			share, burst := r.Int64N(most+1), r.Int64N(most+1)
			b.roll(now, share, burst, false)
			question = append(question, fmt.Sprintf("0 %d %d %d", now, share, burst))
		} else {
			b.ready = b.at(now)
			n := r.Int64N(b.ready + 1)
			if r.IntN(2) == 0 {
				n = b.ready
			}
			b.take(n, now)
			question = append(question, fmt.Sprintf("1 %d %d", now, n))
		}
		answer = append(answer, fmt.Sprintf("%d,%d", b.at(now), b.empty))
	}
	return fmt.Sprintf("bucket %d %d %s", spanOf(length), events, strings.Join(question, " ")), strings.Join(answer, ",")
}

// ringQuestion asks how many permits count in a ring after each of a few takes.
func ringQuestion(r *rand.Rand) (ask, code string) {
	length := time.Duration(1+r.Int64N(600)) * 100 * time.Millisecond
	slot := int64(length) / 500
	ring := ring{length: length}
	transit := max(0, r.Int64N(int64(length))-int64(length)/2)
	ring.allowFor(transit)
	now := r.Int64N(int64(time.Hour))
	var question []string
	var answer []string
	events := 1 + r.IntN(20)
	for range events {
		now += r.Int64N(1 + r.Int64N(int64(length)))
		ring.roll(now)
		n := r.Int64N(10)
		ring.take(n, now)
		question = append(question, fmt.Sprint(slotAt(length, now), n))
		answer = append(answer, fmt.Sprint(ring.sum))
	}
	return fmt.Sprintf("ring %d %d %d %s", transit, slot, events, strings.Join(question, " ")), strings.Join(answer, ",")
}
