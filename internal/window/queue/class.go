package queue

// Class is the class of a call. While a call of a class waits, none of a lower class is
// served, and calls of one class are served in the order in which they came.
type Class uint8

// The classes, the highest first.
const (
	Critical Class = iota
	Default
	Sheddable

	// Classes is how many there are.
	Classes = 3
)
