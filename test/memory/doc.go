// Package memory floods an etcd as somebody with a consumer's rights could, and
// checks how much memory an instance, the dashboard and the tools take. Its tests
// have the build tag load, for Linux:
//
//	go test -tags load ./test/memory
package memory
