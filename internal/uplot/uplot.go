// Package uplot holds uPlot, the library that draws the charts of our pages: by
// Leon Sorokin, under the MIT licence that lies beside it. It is embedded, so
// that a page needs no network.
//
// The files are those of the npm package at the version named below, unchanged:
//
//	npm pack uplot@1.6.32
//
// uplot.js is dist/uPlot.iife.min.js, which defines the global uPlot, and
// uplot.css is dist/uPlot.min.css. To renew them, replace both, LICENSE, the
// version, and the sums in the test.
package uplot

import _ "embed"

// Version is that of the npm package.
const Version = "1.6.32"

var (
	// JS is the script. It contains no "</script", so that a page can hold it.
	//go:embed uplot.js
	JS string
	// CSS is the style sheet.
	//go:embed uplot.css
	CSS string
	// Licence is to be kept with every copy of the two.
	//go:embed LICENSE
	Licence string
)
