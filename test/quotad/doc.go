// Package quotad runs quotad as a process, with a real etcd, Python and Node.js processes
// as its clients, and a provider that counts. Clients are killed, and quotad is restarted.
// Its test has the build tag e2e, and needs python3, node, and the compiled client of
// clients/typescript in $QUOTIENT_TYPESCRIPT:
//
//	.ci/run quotad
package quotad
