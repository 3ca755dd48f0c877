package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
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

// A change that is made while history --follow runs is a line of its own.
func TestHistoryFollows(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "payments/charge", "100/s")
	client := etcdtest.NewClient(t, server)
	operator, err := admin.New(client, admin.Options{Prefix: b.prefix})
	if err != nil {
		t.Fatal(err)
	}
	lines, written := io.Pipe()
	said, told := io.Pipe()
	a := &app{stdout: written, stderr: told, format: format.Table, etcd: &etcdflags.Flags{Prefix: b.prefix}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.follow(ctx, connection{operator, client}) }()
	if text, err := bufio.NewReader(said).ReadString('\n'); err != nil || !strings.HasPrefix(text, "following") {
		t.Fatalf("%q, %v", text, err)
	}
	// The watch may begin after a change: until it does, there are more.
	changes, stop := context.WithCancel(t.Context())
	go func() {
		for n := 0; changes.Err() == nil; n++ {
			b.call("set", "payments/charge", []string{"200/s", "300/s"}[n%2], "--reason", "campaign")
		}
	}()
	text, err := bufio.NewReader(lines).ReadString('\n')
	stop()
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	for _, want := range []string{" payments/charge revision ", "00/s -> ", ", by ann@host: campaign\n"} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%q, %v lacks %q", text, err, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
