// Package readme runs the commands of README.md and of the other documents, as a
// newcomer would type them.
package readme
