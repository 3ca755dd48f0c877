// Package large lives through the history of a fleet of thousands.
//
// Package histories plays all hosts together, with everything that can go wrong; its
// fleets are small. Here the hosts are played one after the other: what etcd commits,
// and when, is drawn first, and given that, one instance's life does not depend on
// another's. So a fleet of 10,000 needs the memory of one instance. The share and the
// settle rule are the real code, share.History; the hosts' clocks, what delays the
// watch, and how recent a proof can be at best are models.
//
// Every instance takes all that it may, whenever it asks: at the edges of every window
// and in between. The sum of each window is compared with the totals that the proof
// allows (docs/protocol.md, section 4).
package large
