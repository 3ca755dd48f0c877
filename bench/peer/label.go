package peer

import "strings"

// labels is read in its order: the names come before the spaces.
var labels = strings.NewReplacer("x-time-rate", "x/time/rate", "redis_rate", "redis_rate", "redis rate", "redis_rate", "_", " ")

// Label returns the name of a limiter as tables and charts show it. Names of benchmarks
// have no slashes, and an underscore in place of each space.
func Label(benchmark string) string { return labels.Replace(benchmark) }
