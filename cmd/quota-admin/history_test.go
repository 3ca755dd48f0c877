package main

import (
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

func TestAHistoryHasPauses(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h := historyJSON{
		Provider: "payments/charge",
		Throttle: &protocol.Throttle{
			Asks: []protocol.Ask{{By: "charge-1", At: at, Until: at.Add(3 * time.Second), Why: "429 from api"}},
		},
	}
	var b strings.Builder
	h.table(&b)
	want := "REVISION\tTIME\tAUTHOR\tOLD\tNEW\tALSO\tREASON\n" +
		"PAUSE\tASKED\tINSTANCE\tUNTIL\tWHY\n\t2026-01-02T03:04:05Z\tcharge-1\t2026-01-02T03:04:08Z\t429 from api\n"
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}
