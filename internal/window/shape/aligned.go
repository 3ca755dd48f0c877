package shape

// aligned is the schedule of aligned windows: all of a share may be issued at once. The
// Count itself counts the permits.
type aligned struct{ neutral }

func (aligned) left(c *Count) int64 { return c.Bound - c.Used }

func (aligned) part(c *Count) int64 { return c.Bound - c.Used }

// when leaves the window's end to the caller: see Schedules.When.
func (aligned) when(_ *Count, _ int64, as Present) int64 { return as.Now }
