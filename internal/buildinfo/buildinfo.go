// Package buildinfo tells what runs: which version of this module a program was built from,
// and who started it.
package buildinfo

import (
	"cmp"
	"os"
	"os/user"
	"runtime/debug"
	"strings"
)

const module = "github.com/quotient-limiter/quotient"

// Version returns the module's version: a tag, a pseudo-version with the commit,
// or "devel" where the go command recorded none, as go run does.
func Version() string {
	info, _ := debug.ReadBuildInfo() // nil where there is none
	return versionOf(info)
}

// User returns user@host; the user is the one behind sudo.
func User() string {
	name := os.Getenv("SUDO_USER")
	if u, err := user.Current(); name == "" && err == nil {
		name = u.Username
	}
	host, _ := os.Hostname() // empty with an error
	return cmp.Or(name, "unknown") + "@" + cmp.Or(host, "unknown")
}

// versionOf finds this module in a program: as its main module, or among those
// that it is built from.
func versionOf(info *debug.BuildInfo) string {
	if info == nil {
		return "devel"
	}
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == module {
			return strings.Trim(cmp.Or(cmp.Or(m.Replace, m).Version, "devel"), "()")
		}
	}
	return "devel"
}
