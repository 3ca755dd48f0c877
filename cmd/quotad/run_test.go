package main

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/coordinator/admin"
)

// A client is told what happened, in the words of no package and not of gRPC.
func TestAnEtcdThatIsAwayIsToldPlainly(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://127.0.0.1:1"}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	operator, err := admin.New(client, admin.Options{Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	err = known(operator)(t.Context(), "p")
	if err == nil || !strings.HasPrefix(err.Error(), "p is not open here, and whether it has a limit is not known: etcd cannot be reached") || strings.Contains(err.Error(), "rpc error") {
		t.Error(err)
	}
}
