// Container is a worker for a container platform. It does jobs, each with a
// permit of its own, until the platform sends SIGTERM; then it hands its share
// over to the other instances without losing a permit, ends the jobs that it has
// begun, and exits within the grace period.
//
// Settings come from the environment:
//
//	ETCD_ENDPOINTS  addresses separated by commas; default 127.0.0.1:2379
//	PROVIDER        the provider whose limit the worker obeys; default demo/jobs
//	WORKERS         jobs that are done at a time; default 8
//	JOB             how long a job takes; default 20ms
//	GRACE           what the platform allows from SIGTERM to SIGKILL; default 30s
package main
