// Package protocol is what the instances of a fleet tell each other, and what each
// works out from it in the same way: views of a provider and their changes, levels,
// and the spans of time in which shapes count. Package quota has what applications
// and operators need.
package protocol
