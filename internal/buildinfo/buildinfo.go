// Package buildinfo tells which version of this module a program was built from.
package buildinfo

import "runtime/debug"

const module = "github.com/quotient-limiter/quotient"

// Version returns the module's version: a tag, a pseudo-version with the commit,
// or "devel" where the go command recorded none, as go run does.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versionOf(nil)
	}
	return versionOf(info)
}

// versionOf finds this module in a program: as its main module, or among those
// that it is built from.
func versionOf(info *debug.BuildInfo) string {
	found := ""
	if info != nil {
		for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
			if m.Path == module {
				if m.Replace != nil {
					m = m.Replace
				}
				found = m.Version
				break
			}
		}
	}
	if found == "" || found == "(devel)" {
		return "devel"
	}
	return found
}
