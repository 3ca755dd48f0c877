package feed

// Cover hides a value in a type of a public package, which embeds the Cover under an
// unexported name. The type gets no public method by it, and only this module's code can
// take the value out.
type Cover[T any] struct{ inside T }

// Over covers a value.
func Over[T any](inside T) Cover[T] { return Cover[T]{inside} }

// Inside returns what a value covers.
func Inside[T any](of interface{ uncovered() T }) T { return of.uncovered() }

func (c Cover[T]) uncovered() T { return c.inside }

// Covered is a source as applications see it: see consumer.Source.
type Covered interface{ uncovered() Source }
