package uplot

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

// What is embedded is what was published: nobody edits it here.
func TestAsPublished(t *testing.T) {
	t.Parallel()
	for _, f := range []struct{ name, text, sum string }{
		{"uplot.js", JS, "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"},
		{"uplot.css", CSS, "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"},
	} {
		sum := sha256.Sum256([]byte(f.text))
		if got := hex.EncodeToString(sum[:]); got != f.sum {
			t.Errorf("%s has the sum %s, not %s: is it that of version %s?", f.name, got, f.sum, Version)
		}
	}
	if !strings.Contains(JS, "v"+Version) || !strings.Contains(Licence, "MIT License") {
		t.Errorf("the script is not of version %s, or the licence is not the MIT licence", Version)
	}
}

// A page holds the script and the sheet between tags, and asks nobody else.
func TestFitsIntoAPage(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"</script", "<!--", "eval(", "new Function", "import(", "fetch("} {
		if strings.Contains(JS, bad) {
			t.Errorf("the script contains %q", bad)
		}
	}
	for _, bad := range []string{"</style", "@import", "url("} {
		if strings.Contains(CSS, bad) {
			t.Errorf("the sheet contains %q", bad)
		}
	}
}
