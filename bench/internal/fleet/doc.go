// Package fleet measures many instances that share one limit through a real
// etcd, in one process: what they issue until the processors are used up.
package fleet
