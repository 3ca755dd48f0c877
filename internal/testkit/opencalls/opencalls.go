// Package opencalls is a provider, for tests, that counts the calls that are open, as one does that limits them.
package opencalls

import "sync"

// Provider counts open calls. Its zero value has none. Its methods are safe for concurrent use.
type Provider struct {
	mu               sync.Mutex
	open, most, made int
}

// Begin opens a call.
func (p *Provider) Begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open++
	p.made++
	p.most = max(p.most, p.open)
}

// End closes a call.
func (p *Provider) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
}

// Counts returns how many calls are open, how many were at once at the most, and how many have begun.
func (p *Provider) Counts() (open, most, made int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open, p.most, p.made
}
