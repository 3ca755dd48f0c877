package window

// aligned is the schedule of aligned windows: all of a share may be issued at once. The
// span itself counts the permits.
type aligned struct{ neutral }

func (aligned) left(s *span) int64 { return s.bound - s.used }

func (aligned) part(s *span) int64 { return s.bound - s.used }

// when leaves the window's end to the account: see room.
func (aligned) when(_ *span, _ int64, as present) int64 { return as.now }
