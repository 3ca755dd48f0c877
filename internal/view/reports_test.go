package view

import "testing"

func TestReports(t *testing.T) {
	t.Parallel()
	var r Reports
	r.Reset(10, []byte("a"))
	kept := func(what string, revision int64, value string, want int64, wantLost bool) {
		t.Helper()
		if got, lost := r.Kept(r.Asked(), revision, []byte(value)); got != want || lost != wantLost {
			t.Errorf("%s: kept %d, lost %v, want %d, %v", what, got, lost, want, wantLost)
		}
	}
	kept("its first", 10, "a", 10, false)
	kept("another one's of the same revision", 10, "x", 0, false)
	kept("somebody wrote over it", 12, "x", 0, false)
	kept("none", 0, "", 0, true)
	kept("an older one", 9, "a", 0, true)

	after := r.Sent([]byte("b"))
	kept("its second, whose answer is under way", 14, "b", 10, false)
	if own, gap := r.Found(after, 14, []byte("b")); !own || gap || r.Newest() != 14 {
		t.Errorf("its second is not its own: own %v, gap %v, newest %d", own, gap, r.Newest())
	}
	kept("its second", 14, "b", 14, false)
	kept("its first, in a store that was put back", 10, "a", 0, true)

	after = r.Sent([]byte("c"))
	if own, gap := r.Found(after, 20, []byte("forged")); own || gap || r.Newest() != 20 {
		t.Errorf("what somebody else wrote is taken as its own: own %v, gap %v, newest %d", own, gap, r.Newest())
	}
	kept("what somebody else wrote is no mark", 20, "forged", 0, false)
	if own, gap := r.Found(after, 14, []byte("b")); own || gap {
		t.Error("an answer from before counts")
	}
	if own, gap := r.Found(r.Sent([]byte("d")), 0, nil); own || !gap {
		t.Error("a report that is gone is no gap")
	}
	asked := r.Asked()
	if r.Found(r.Sent([]byte("d")), 24, []byte("d")); r.Newest() != 24 {
		t.Errorf("newest %d, want 24", r.Newest())
	}
	if kept, lost := r.Kept(asked, 24, []byte("d")); kept != 14 || lost {
		t.Errorf("written after the question: kept %d, lost %v", kept, lost)
	}
	if _, lost := r.Kept(asked, 20, []byte("forged")); lost {
		t.Error("an answer from before the newest write is a loss")
	}
	r.Reset(30, []byte("e"))
	if own, gap := r.Found(20, 22, []byte("d")); own || gap || r.Newest() != 30 {
		t.Error("an answer from before a listing counts")
	}
}
