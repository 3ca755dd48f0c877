package coordinator

const (
	// maxProviders bounds the providers of a session.
	maxProviders = 1000
	// maxSeats bounds the instances of all providers of a session together: when all
	// start at once, each is told of each. A provider counts for maxCounted at most, so
	// that foreign keys of one do not keep others out.
	maxSeats   = 20_000
	maxCounted = 2_000
)
