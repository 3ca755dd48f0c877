package main

import (
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

func TestAHistoryHasPausesAndPaces(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	paced := func(n int64) []quota.Limit { return []quota.Limit{{Permits: n, Window: time.Second}} }
	h := historyJSON{
		Provider: "payments/charge",
		Throttle: &protocol.Throttle{
			Asks:   []protocol.Ask{{By: "charge-1", At: at, Until: at.Add(3 * time.Second), Why: "429 from api"}},
			Limits: paced(800), Time: at.Add(time.Hour), Past: []protocol.PastPace{{Limits: paced(600), Time: at}},
		},
	}
	var b strings.Builder
	h.table(&b)
	want := "REVISION\tTIME\tAUTHOR\tOLD\tNEW\tALSO\tREASON\n" +
		"PAUSE\tASKED\tINSTANCE\tUNTIL\tWHY\n\t2026-01-02T03:04:05Z\tcharge-1\t2026-01-02T03:04:08Z\t429 from api\n" +
		"PACE\tSINCE\tLIMITS\n\t2026-01-02T03:04:05Z\t600/s\n\t2026-01-02T04:04:05Z\t800/s\n"
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}
