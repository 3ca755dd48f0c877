package protocol

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/quotient-limiter/quotient/quota"
)

// MaxKeyBytes bounds the name of a key.
const MaxKeyBytes = 256

// OfKeys returns the policy by which instances share the limits of each key: that of the
// provider with other limits. It is nil where keys have none.
func OfKeys(p *quota.Policy) *quota.Policy {
	if p == nil || len(p.Keys.Limits) == 0 {
		return nil
	}
	k := *p
	k.Limits, k.Keys, k.Next = p.Keys.Limits, quota.Keys{}, nil
	k.Shape, k.Burst = quota.ShapeFixed, 0
	return &k
}

// ValidateKey checks the name of a key: 1 to 256 bytes of valid UTF-8 without control
// characters.
func ValidateKey(name string) error {
	return validateName("key", name, MaxKeyBytes, "installation-4711, or a hash of it")
}

// validateName checks the name of a key or label.
func validateName(what, name string, most int, example string) error {
	var problem string
	switch {
	case name == "":
		problem = "is empty"
	case len(name) > most:
		problem = fmt.Sprintf("has %d bytes, more than the most, %d", len(name), most)
	case !utf8.ValidString(name):
		problem = "is not valid UTF-8"
	case strings.ContainsFunc(name, unicode.IsControl):
		problem = "has a control character"
	default:
		return nil
	}
	return fmt.Errorf("%s %q %s; write a name like %s", what, name[:min(len(name), 64)], problem, example)
}
