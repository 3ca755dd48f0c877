// Package report writes results down: Markdown with tables, charts as SVG, and
// the goals with what came out.
package report
