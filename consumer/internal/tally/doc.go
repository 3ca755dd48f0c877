// Package tally has what a limiter counts of its calls beside permits: the Busiest keys and labels, what calls usually
// cost (Costs), and how many calls a provider refuses (Refusals). Time is a parameter.
package tally
