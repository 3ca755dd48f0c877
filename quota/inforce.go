package quota

// PermitsFor returns the total of window w: the limit of its length in force
// for it. inForce is false if the policy is not in force yet; limited is false
// if it is, but does not limit windows of this length.
//
// A limit in force at a window's start rules that window. One whose length
// comes into force within the window rules all of it: otherwise nothing would
// bind between the change and the length's next boundary.
func (p *Policy) PermitsFor(w Window) (permits int64, limited, inForce bool) {
	start := w.Start()
	limits := p.LimitsAt(start)
	if limits == nil {
		return 0, false, false
	}
	if permits, limited = permitsOf(limits, w); limited {
		return permits, true, true
	}
	for i := range p.Next {
		if from := nanos(p.Next[i].From); from > start && from < w.End() {
			if n, ok := permitsOf(p.Next[i].Limits, w); ok && (!limited || n < permits) {
				permits, limited = n, true
			}
		}
	}
	return permits, limited, true
}

func permitsOf(limits []Limit, w Window) (int64, bool) {
	for i := range limits {
		if limits[i].Window == w.Length {
			return limits[i].Permits, true
		}
	}
	return 0, false
}
