package load

import (
	"math"
	"time"
)

// KeySummary is what came of the keys' limits.
type KeySummary struct {
	Keys int `json:"keys"` // for which permits were issued
	// Windows are those of all keys with a permit, and OverLimitWindows those of them that have
	// certainly more than the key's limit.
	Windows          int `json:"windows"`
	OverLimitWindows int `json:"over_limit_windows"`
	// MaxOverRatio is the largest issued over the limit. A limit of 0 counts as 1 here.
	MaxOverRatio float64 `json:"max_over_ratio"`
}

// keys judges each window of each key; nil if calls have no keys.
func (r *Run) keys() *KeySummary {
	if len(r.Keys) == 0 {
		return nil
	}
	s := &KeySummary{}
	for _, counts := range r.Keys {
		some := false
		for _, c := range counts {
			if c.Issued <= 0 {
				continue
			}
			some = true
			s.Windows++
			if c.certain() > r.KeyLimit.Permits {
				s.OverLimitWindows++
			}
			s.MaxOverRatio = max(s.MaxOverRatio, ratio(c.certain(), max(r.KeyLimit.Permits, 1)))
		}
		if some {
			s.Keys++
		}
	}
	return s
}

// keysTake is how many permits the calls for keys can get in the window of a length that starts
// at start: those of each key, up to its limit.
func (r *Run) keysTake(start int64, length time.Duration) (n int64) {
	if len(r.Keys) == 0 {
		return math.MaxInt64
	}
	for _, counts := range r.Keys {
		for _, c := range counts {
			if at := c.Index * int64(r.KeyLimit.Window); start <= at && at < start+int64(length) {
				n += min(max(c.Offered, c.Issued), r.KeyLimit.Permits)
			}
		}
	}
	return n
}
