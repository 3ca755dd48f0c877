// Package e2e tests whole programs: real processes, a real etcd, real time. Its
// tests have the build tag e2e and take minutes:
//
//	go test -tags e2e -timeout 10m ./e2e
package e2e
