package config

import (
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// maxKeys bounds the keys of a run: each has counts of its own in every generator.
const maxKeys = 1000

// parseKeys reads the limit of each key. The flags that say how calls spread mean keys then.
func (c *Config) parseKeys(limit string) error {
	if err := within("--keys", c.Keys, 0, maxKeys); err != nil || c.Keys == 0 {
		return err
	}
	shortest := load.Shortest(c.Limits)
	c.KeyLimit = quota.Limit{Permits: (shortest.Permits + int64(c.Keys) - 1) / int64(c.Keys), Window: shortest.Window}
	if limit != "" {
		limits, err := parseLimits("--key-limit", limit)
		if err != nil {
			return err
		}
		if c.KeyLimit = limits[0]; len(limits) > 1 || c.KeyLimit.Window != shortest.Window {
			return Usagef("--key-limit %s: keys have one limit, of the same window as the shortest of --limit, %v: use N/%[2]v", limit, shortest.Window)
		}
	}
	switch {
	case c.MaxWait > 0:
		return Usagef("--max-wait %v: calls for keys do not wait here: leave it out", c.MaxWait)
	case c.Spread.Hot > 0 || c.Spread.Move > 0:
		return Usagef("--hot and --move are of instances, and --keys has all make the same calls: use --zipf, which is of keys then")
	}
	c.KeySpread, c.Spread.Zipf = load.Spread{Zipf: c.Spread.Zipf}, 0
	c.policy.Keys.Limits = []quota.Limit{c.KeyLimit}
	return nil
}
