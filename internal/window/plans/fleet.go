package plans

import "github.com/quotient-limiter/quotient/internal/window/lending"

// Fleet is what all instances have together in the shortest window.
type Fleet struct {
	Total     int64 // permits
	Instances int   // that have callers
	Owners    int   // those of Instances that divide the window; some have no permit of it if it has fewer than these
}

// Fair is the total divided equally.
func (f Fleet) Fair() float64 { return float64(f.Total) / float64(max(1, f.Instances)) }

// Rules are the rules of lending among so many.
func (f Fleet) Rules() lending.Rules { return lending.RulesOf(f.Instances, f.Owners) }
