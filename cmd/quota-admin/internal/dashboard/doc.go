// Package dashboard is the web page of quota-admin: providers, their limits and
// fleets, live, and where it is allowed a change of a limit.
//
// A follower reads etcd once a second while somebody looks, as top does, and not
// at all while nobody does; it asks the instances to report that often. What it
// reads becomes a state, which replaces the one before, and points of a chart,
// which are numbered (package sse). The page is embedded, and shows only what it
// is sent. Who may ask is decided before (package webguard).
package dashboard
