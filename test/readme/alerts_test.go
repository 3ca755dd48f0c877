package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

var (
	alertRule = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
	alertRow  = regexp.MustCompile("`(Quot[a-z]+[A-Z]\\w*)`")
)

// docs/run.md says of each alert what to do, and names no other.
func TestThePageHasEveryAlert(t *testing.T) {
	t.Parallel()
	names := func(file string, pattern *regexp.Regexp) (list []string) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pattern.FindAllStringSubmatch(string(text), -1) {
			list = append(list, m[1])
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	rules, page := names("deploy/prometheus/quotient.rules.yml", alertRule), names("docs/run.md", alertRow)
	if len(rules) == 0 || !slices.Equal(rules, page) {
		t.Errorf("the rules have %v, and docs/run.md %v", rules, page)
	}
}
