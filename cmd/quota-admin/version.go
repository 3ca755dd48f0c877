package main

import (
	"io"
	"runtime"
	"runtime/debug"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/internal/buildinfo"
)

// buildInfo is what the binary knows about itself.
type buildInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"` // the commit is not all of it
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the tool's version",
		Example: "  quota-admin version -o json",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			v := readBuildInfo()
			return a.emit(v, func(w io.Writer) {
				format.Row(w, "VERSION", "COMMIT", "GO", "PLATFORM")
				format.Row(w, format.Show(v.Version), format.Show(v.Commit), v.Go, v.Platform)
			})
		},
	}
}

// readBuildInfo takes what the go command wrote into the binary.
func readBuildInfo() buildInfo {
	v := buildInfo{Version: buildinfo.Version(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
