// Package faults tests what really happens in production: real processes, three
// real etcd members, each host in a network namespace of its own, real chrony
// servers, and faults: processes killed and stopped, hosts cut off, slow and
// lossy links, frozen disks, wrong clocks. A provider process counts what
// arrives on its own clock. TestScenarios plays one fault after another,
// TestCallsInFlight those of a limit in flight, and TestByChance many at once,
// by a seed. TestLatencies measures how soon changes take effect.
//
// The tests need Linux and root, and the build tag e2e (make e2e):
//
//	go test -tags e2e -count=1 -timeout 45m -v ./test/faults
//	E2E='leader|clocks' E2E_TABLE=/tmp/table.md go test -tags e2e -count=1 -v ./test/faults
//	go test -tags e2e -count=1 -v -run ByChance -timeout 0 ./test/faults -for 1h -seed 17
//
// The test binary is every program of an experiment: it starts itself in a
// namespace, with a role in its environment.
package faults
