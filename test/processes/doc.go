// Package processes tests whole programs: real processes, a real etcd, real time. Its
// tests have the build tag e2e and take minutes:
//
//	go test -tags e2e -timeout 10m ./test/processes
package processes
