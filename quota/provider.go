package quota

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ValidateProvider checks a provider's name: a path of one or more parts
// separated by "/", of printable characters, at most 200 bytes long. No
// part is empty, "." or "..", so that the name reads the same everywhere.
func ValidateProvider(name string) error {
	problem := ""
	switch {
	case name == "":
		problem = "is empty"
	case len(name) > maxProviderBytes:
		problem = fmt.Sprintf("has %d bytes, more than the most, %d", len(name), maxProviderBytes)
	case !utf8.ValidString(name):
		problem = "is not valid UTF-8"
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		problem = "has a character that cannot be printed"
	case strings.TrimSpace(name) != name:
		problem = "begins or ends with a blank"
	default:
		for part := range strings.SplitSeq(name, "/") {
			if part == "" || part == "." || part == ".." {
				problem = fmt.Sprintf("has a part %q", part)
			}
		}
	}
	if problem == "" {
		return nil
	}
	return fmt.Errorf("provider %q %s; write a path like %q", shorten(name), problem, "payments/charge")
}
