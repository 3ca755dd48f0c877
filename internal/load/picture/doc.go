// Package picture shows a run of the load generator: as charts, and as a page with
// charts that stands alone in one file.
package picture
