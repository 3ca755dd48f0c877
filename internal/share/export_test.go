package share

import "time"

// Listed is what a level's list has for an instance.
func Listed(list []byte, id string) int64 { return demandIn(list, hashID(id)) }

// Code and Float are the list's numbers.
func Code(demand int64) uint16 { return codeOf(demand) }
func Float(code uint16) int64  { return float(code) }

// FillSeconds is fill for windows of a second, of permits a second.
func FillSeconds(total, floor int64, perSecond []int64) Level {
	var asks []ask
	for _, d := range perSecond {
		if d > 0 {
			asks = counted(asks, 1000*d, 1)
		}
	}
	return fill(total, floor, int64(len(perSecond)), time.Second, asks)
}
