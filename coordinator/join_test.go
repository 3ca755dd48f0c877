package coordinator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func TestJoinWithoutEtcdFailsSoonAndSaysWhy(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	start := time.Now()
	_, err = Join(t.Context(), client, Options{Logger: quiet})
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v, want ErrUnreachable with the endpoint", err)
	}
	if d := time.Since(start); d > 8*time.Second {
		t.Errorf("it took %v", d)
	}
}

func TestJoinRefusesBadOptions(t *testing.T) {
	f := setup(t)
	for _, o := range []Options{{TTL: time.Second}, {TTL: time.Hour}, {Probe: time.Millisecond}, {Weight: -1}, {Name: strings.Repeat("x", 200)}, {Prefix: "no-slash"}, {NTP: []string{"a", "a"}}, {NTP: []string{"a:b:c"}}, {NTPInterval: time.Hour}} {
		if s, err := Join(t.Context(), f.client, o); err == nil {
			t.Errorf("%+v was taken", o)
			_ = s.Close()
		}
	}
}

func TestOldServersAreRefused(t *testing.T) {
	for version, good := range map[string]bool{
		"3.4.38": false, "3.5.21": false, "3.5.22": true, "3.5.30": true, "3.6.0": false, "3.6.1": false,
		"3.6.2": true, "3.6.2-rc.0": true, "3.7.0": true, "4.0.0": true, "what": false,
	} {
		err := checkVersionsOf(t.Context(), []string{"e"}, func(context.Context, string) (string, error) { return version, nil })
		if (err == nil) != good {
			t.Errorf("version %s: %v", version, err)
		}
		if err != nil && !strings.Contains(err.Error(), version) {
			t.Errorf("%v does not name the version", err)
		}
	}
	one := func(_ context.Context, e string) (string, error) {
		if e == "down" {
			return "", errors.New("down")
		}
		return "3.7.3", nil
	}
	if err := checkVersionsOf(t.Context(), []string{"down", "up"}, one); err != nil {
		t.Errorf("one of two members is down: %v", err)
	}
}
