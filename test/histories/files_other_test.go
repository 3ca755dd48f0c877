//go:build !linux

package histories

// canReplace says whether a process can continue another: Options.StateDir needs Linux.
const canReplace = false

func release(string) {}
