package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/quotient-limiter/quotient"

// pkg is what `go list` says of a package.
type pkg struct {
	ImportPath string
	Imports    []string // of what is compiled into a program: not of tests
	Standard   bool
}

// graph is the packages of this module and all that they link, by import path.
type graph map[string]pkg

// rule says what some packages must not link, directly or through others.
type rule struct {
	who    []string // packages by path within the module; "internal/..." takes all below
	except []string // the same, taken out again
	not    []string // import paths; a trailing "/..." takes all below; notStandard and notOurs take those
	why    string
}

const (
	notStandard = "other than the standard library"
	notOurs     = "other than the standard library and this module"
)

var rules = []rule{
	{
		who: []string{"quota"},
		not: []string{notStandard},
		why: "the vocabulary is what every package and application may depend on, so it depends on nothing",
	},
	{
		who: []string{"consumer", "internal/window", "internal/share", "internal/clock", "internal/feed", "internal/protocol", "internal/session/view", "quota"},
		not: []string{"go.etcd.io/...", "google.golang.org/grpc/..."},
		why: "an application that enforces a share, or tests with a fixed one, must not link etcd's client and gRPC",
	},
	{
		who: []string{"consumer/..."},
		not: []string{module + "/coordinator/..."},
		why: "consumer declares the source that it needs, so that it can be used and tested without etcd",
	},
	{
		who: []string{"coordinator/..."},
		not: []string{module + "/consumer/..."},
		why: "coordinator tells what it learns to any sink; internal/feed is the seam",
	},
	{
		who:    []string{"internal/..."},
		except: []string{"internal/ratefields"}, // what httplimit and quotad write of a limiter's status
		not:    []string{module + "/consumer/...", module + "/coordinator/...", module + "/cmd/..."},
		why:    "imports point down only: the public packages are built on internal ones, not the other way round",
	},
	{
		who: []string{"consumer/...", "coordinator/...", "quota/..."},
		not: []string{module + "/cmd/...", module + "/examples/..."},
		why: "imports point down only: programs are built on packages",
	},
	{
		who:    []string{"..."},
		except: []string{"cmd/...", "examples/...", "internal/embedded", "internal/testkit/etcdtest"},
		not:    []string{"go.etcd.io/etcd/server/..."},
		why:    "applications must not link an etcd server; only programs and tests embed one",
	},
	{
		who:    []string{"..."},
		except: []string{"internal/testkit/...", "test/..."},
		not:    []string{"testing"},
		why:    "package testing registers flags in whatever links it",
	},
	{
		who: []string{"consumer"},
		not: []string{notOurs},
		why: "the limiter itself costs no dependency; each integration is a package of its own",
	},
	{
		who:    []string{"consumer/..."},
		except: []string{"consumer/grpclimit/..."},
		not:    []string{"google.golang.org/grpc/...", "go.etcd.io/..."},
		why:    "only who uses gRPC links it",
	},
	{
		who:    []string{"consumer/...", "coordinator/...", "quota/..."},
		except: []string{"consumer/prommetrics/..."},
		not:    []string{"github.com/prometheus/..."},
		why:    "only who has metrics scraped links Prometheus's client",
	},
	{
		who: []string{"consumer", "internal/clock"},
		not: []string{"github.com/beevik/...", "golang.org/x/...", module + "/internal/ntp"},
		why: "clocks are measured by who has a session; what enforces a share only follows",
	},
	{
		who: []string{"..."},
		not: []string{"github.com/twmb/..."},
		why: "the example for Kafka is a module of its own, so that nobody else pays for its client",
	},
	{
		who: []string{"cmd/quotad/internal/..."},
		not: []string{module + "/coordinator/...", "go.etcd.io/...", module + "/cmd/quotad"},
		why: "quotad's rooms serve any source, and are tested without etcd; main joins them to a session",
	},
	{
		who: []string{"cmd/quotad/internal/host"},
		not: []string{module + "/cmd/quotad/internal/api/...", module + "/cmd/quotad/internal/envoy/..."},
		why: "the ways into quotad use the host's limiters, not the other way round",
	}, {
		who: []string{"internal/load"},
		not: []string{module + "/internal/protocol", module + "/internal/share", module + "/internal/window"},
		why: "a judge shares no code with what it judges",
	},
	{
		who: []string{"coordinator"},
		not: []string{module + "/coordinator/admin"},
		why: "an instance follows policies, and sets none",
	},
	{
		who: []string{"coordinator/admin"},
		not: []string{module + "/coordinator"},
		why: "what operators and sessions both need lies below both",
	},
	{
		who: []string{"internal/session"},
		not: []string{"go.etcd.io/...", "google.golang.org/grpc/..."},
		why: "what a session decides is a function of events and instants; package coordinator has the client of etcd",
	},
	{
		who: []string{"internal/share"},
		not: []string{module + "/internal/window"},
		why: "what makes plans and what enforces them share internal/window/plans, and know nothing of each other",
	},
}

// matches reports whether path is the pattern, or below it where the pattern
// ends with "...".
func matches(pattern, path string) bool {
	below, ok := strings.CutSuffix(pattern, "...")
	if !ok {
		return path == pattern
	}
	return strings.HasPrefix(path+"/", below)
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}

// binds reports whether the rule is about the package.
func (r rule) binds(path string) bool {
	inner, ok := strings.CutPrefix(path, module+"/")
	return ok && matchesAny(r.who, inner) && !matchesAny(r.except, inner)
}

// forbids reports whether the rule's packages must not link p.
func (r rule) forbids(p pkg) bool {
	if slices.Contains(r.not, notStandard) && !p.Standard {
		return true
	}
	if slices.Contains(r.not, notOurs) && !p.Standard && !matches(module+"/...", p.ImportPath) {
		return true
	}
	return matchesAny(r.not, p.ImportPath)
}

// chain returns the shortest way by imports from a package to one that the
// rule forbids, both included, and nil if there is none.
func (g graph) chain(from string, r rule) []string {
	cameFrom := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, next := range g[queue[0]].Imports {
			if _, seen := cameFrom[next]; seen {
				continue
			}
			cameFrom[next] = queue[0]
			if r.forbids(g[next]) {
				way := []string{next}
				for at := queue[0]; at != ""; at = cameFrom[at] {
					way = append(way, at)
				}
				slices.Reverse(way)
				return way
			}
			queue = append(queue, next)
		}
	}
	return nil
}

// linked asks the go command once what links what.
var linked = sync.OnceValues(func() (graph, error) {
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Standard", "./...")
	list.Dir = root
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		return nil, errors.Join(err, errors.New(stderr.String()))
	}
	g := graph{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return g, nil
		} else if err != nil {
			return nil, err
		}
		g[p.ImportPath] = p
	}
})

func TestImports(t *testing.T) {
	t.Parallel()
	g, err := linked()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := g[module+"/quota"]; !ok {
		t.Fatalf("go list knows %d packages, but not quota: the rules would hold of nothing", len(g))
	}
	for _, r := range rules {
		for path := range g {
			if !r.binds(path) {
				continue
			}
			if way := g.chain(path, r); way != nil {
				t.Errorf("%s\n\tmust not link %s: %s", strings.Join(way, "\n\t-> "), strings.Join(r.not, ", "), r.why)
			}
		}
	}
}

// The rules catch what they are for, in an invented module.
func TestRulesCatch(t *testing.T) {
	t.Parallel()
	const m = module
	g := graph{}
	for path, imports := range map[string][]string{
		m + "/quota":                     {"time", m + "/internal/text"},
		m + "/internal/text":             {"time"},
		m + "/consumer":                  {m + "/quota", m + "/internal/feed"},
		m + "/internal/feed":             {"go.etcd.io/etcd/client/v3"},
		m + "/coordinator":               {m + "/consumer/httplimit", m + "/internal/testkit/etcdtest", m + "/coordinator/admin"},
		m + "/internal/testkit/etcdtest": {"go.etcd.io/etcd/server/v3/embed", "testing"},
		m + "/internal/load":             {m + "/coordinator"},
		m + "/cmd/loadgen":               {m + "/internal/testkit/etcdtest"},

		m + "/consumer/httplimit":   {m + "/consumer", "google.golang.org/grpc/codes"},
		m + "/consumer/grpclimit":   {"google.golang.org/grpc/codes", "github.com/prometheus/common"},
		m + "/consumer/prommetrics": {"github.com/prometheus/common"},
	} {
		g[path] = pkg{ImportPath: path, Imports: imports}
		for _, i := range imports {
			if _, ok := g[i]; !ok {
				g[i] = pkg{ImportPath: i, Standard: i == "time" || i == "testing"}
			}
		}
	}
	var got []string
	for n, r := range rules {
		for path := range g {
			if way := g.chain(path, r); r.binds(path) && way != nil {
				got = append(got, strings.ReplaceAll(strings.Join(way, " "), m+"/", "")+" "+strconv.Itoa(n))
			}
		}
	}
	slices.Sort(got)
	want := []string{
		"cmd/loadgen internal/testkit/etcdtest testing 7",
		"consumer internal/feed go.etcd.io/etcd/client/v3 1",
		"consumer internal/feed go.etcd.io/etcd/client/v3 8",
		"consumer internal/feed go.etcd.io/etcd/client/v3 9",
		"consumer/grpclimit github.com/prometheus/common 10",
		"consumer/httplimit google.golang.org/grpc/codes 9",
		"coordinator consumer/httplimit 3",
		"coordinator coordinator/admin 16",
		"coordinator internal/testkit/etcdtest go.etcd.io/etcd/server/v3/embed 6",
		"coordinator internal/testkit/etcdtest testing 7",
		"internal/feed go.etcd.io/etcd/client/v3 1",
		"internal/load coordinator 4",
		"internal/load coordinator internal/testkit/etcdtest go.etcd.io/etcd/server/v3/embed 6",
		"internal/load coordinator internal/testkit/etcdtest testing 7",
		"quota internal/text 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
