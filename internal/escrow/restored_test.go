package escrow

import "testing"

// A process reads, the store is restored under another cluster ID, and then the store commits
// what the process had sent. Another process withholds the window before the first one reads
// again. What it sent counts for nothing then, until an operator has corrected the total.
func TestAHoldingSentToARestoredStore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		total Total
		want  int64
	}{
		{Total{Limit: 10, Out: 5, Cluster: 1}, 0},
		{Total{Limit: 10, Out: 5, Cluster: 2, Withheld: otherCluster}, 0},
		{Total{Limit: 10, Out: 5, Cluster: 2}, 5},
	} {
		var a Account
		a.Read(&Reading{Store: Store{Cluster: 1}, Revision: 7, Total: Total{Limit: 10, Cluster: 1}, TotalRevision: 5})
		a.Sent(5)
		a.Read(&Reading{Store: Store{Cluster: 2}, Revision: 9, Total: c.total, TotalRevision: 9, Own: Holding{Taken: 5}, OwnRevision: 8})
		if may := a.May(); may != c.want {
			t.Errorf("with %+v it may issue %d, want %d", c.total, may, c.want)
		}
	}
}
