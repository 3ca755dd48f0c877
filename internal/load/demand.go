package load

// Demand is how much a fleet asks for.
type Demand struct {
	// Ratio is offered calls over the limit; more than 0.
	Ratio     float64
	Skew      Skew
	Instances int
}

// Of returns what an instance with the given part of all calls asks for in a
// window with the given total: a mean, and a number below which no window
// falls.
//
// At a ratio of 1 or more, evenly spread, each instance makes at least one call more
// than the largest possible share, so unused permits are the limiter's fault.
func (d Demand) Of(part float64, total int64) (mean float64, floor int64) {
	mean = d.Ratio * float64(total) * part
	if d.Ratio >= 1 && d.Skew.Even() {
		n := int64(d.Instances)
		floor = (total+n-1)/n + 1
	}
	return mean, floor
}
