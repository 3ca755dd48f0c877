package window

// Wake returns the instant at which Tick should be called next, or clock.Forever: the tests have
// no alarm.
func (g *Gate) Wake() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wakeLocked()
}
