// Package chart draws charts of quantities over a common axis, as SVG: lines,
// steps and areas, with events marked on the way.
//
// A drawing is a function of its data and its width: the same ones give the same
// bytes. It has no script, loads nothing, and follows the reader's preference for
// a light or a dark screen. Every text is escaped.
package chart
