package admin

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// FuzzRecord and FuzzInstanceKey feed what operators' tools read beside policies.
// Nothing may panic, what is wrong is told, and what is taken for an instance is
// valid.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"schema":1,"author":"ann@host","time":"2027-01-01T00:00:00Z","old_revision":7,"old":{"schema":1},"new":{"schema":1,"limits":[{"permits":5,"window":"1s"}]}}`))
	f.Add([]byte(`{"schema":1,"time":"9999-12-31T23:59:59Z","new":[]}`))
	f.Add([]byte(`null`))
	f.Add([]byte("\xff"))
	f.Fuzz(func(t *testing.T, value []byte) {
		r := recordOf("key", value, 3)
		if r.Revision != 3 {
			t.Errorf("revision %d", r.Revision)
		}
		if r.Problem != nil && (r.New != nil || !strings.Contains(r.Problem.Error(), `"key"`)) {
			t.Errorf("%+v", r)
		}
	})
}

func FuzzInstanceKey(f *testing.F) {
	f.Add([]byte(`{"schema":1,"name":"worker-7","from":"2027-01-01T00:00:04Z"}`), []byte(`{"state":"active","used":5}`), int64(0))
	f.Add([]byte(`{"schema":1,"until":"0000-01-01T00:00:00Z"}`), []byte(`{"time":"9999-12-31T23:59:59Z","used":9223372036854775807}`), int64(7))
	f.Add([]byte("\xff"), []byte(`[`), int64(7))
	f.Fuzz(func(t *testing.T, value, report []byte, lease int64) {
		s := instanceOf("id", &mvccpb.KeyValue{Key: []byte("key"), Value: value, Lease: lease})
		if err := s.Instance.Validate(); err != nil || s.Instance.ID != "id" {
			t.Errorf("%q is instance %+v, %v", value, s.Instance, err)
		}
		if lease == 0 && s.Problem == nil {
			t.Error("nobody is told of a key without a lease")
		}
		takeReport(&s, &mvccpb.KeyValue{Key: []byte("key"), Value: report})
		if s.Report == nil && s.Problem == nil {
			t.Errorf("nobody is told of report %q", report)
		}
	})
}
