package etcdcall

import "testing"

// What gRPC says of a failure ends where the failure is told.
func TestErrorsAreNotInTheWordsOfGRPC(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`read: etcd cannot be reached: rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`: "read: etcd cannot be reached: dial tcp 127.0.0.1:1: connect: connection refused",
		`log in: rpc error: code = DeadlineExceeded desc = latest balancer error: last connection error: desc = "transport: x"`:                                                           "log in: x",
		"coordinator: a limit is missing": "a limit is missing",
		"admin: a reason is too long":     "a reason is too long",
	} {
		if got := Plain(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
