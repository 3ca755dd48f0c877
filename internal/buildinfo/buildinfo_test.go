package buildinfo

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	ours := func(version string) *debug.Module { return &debug.Module{Path: module, Version: version} }
	other := debug.Module{Path: "example.com/app", Version: "v9.9.9"}
	for want, info := range map[string]*debug.BuildInfo{
		"v0.1.0": {Main: *ours("v0.1.0")},
		"v0.2.0": {Main: other, Deps: []*debug.Module{{Path: "example.com/x", Version: "v1.0.0"}, ours("v0.2.0")}},
		"v0.3.0": {Main: other, Deps: []*debug.Module{{Path: module, Version: "v0.1.0", Replace: ours("v0.3.0")}}},
		"devel":  {Main: *ours("(devel)")},
	} {
		if got := versionOf(info); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := versionOf(nil); got != "devel" {
		t.Errorf("without build information: %q", got)
	}
	if Version() == "" {
		t.Error("no version")
	}
}
