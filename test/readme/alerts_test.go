package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	alertRule = regexp.MustCompile(`(?s)- alert: (\w+)\n(.*?)(\n\n|$)`) // with its action
	pageNamed = regexp.MustCompile(`(docs/[a-z-]+\.md): ([^,"]+)`)      // and a heading of it, in an action
)

// Each alert says what to do, and a page that it names has the heading that it names.
func TestEachAlertSaysWhatToDo(t *testing.T) {
	t.Parallel()
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	alerts := alertRule.FindAllStringSubmatch(read("deploy/prometheus/quotient.rules.yml"), -1)
	for _, alert := range alerts {
		if !strings.Contains(alert[2], "action: \"") {
			t.Errorf("%s has no action", alert[1])
		}
		for _, named := range pageNamed.FindAllStringSubmatch(alert[2], -1) {
			if !regexp.MustCompile(`(?m)^#+ ` + regexp.QuoteMeta(named[2])).MatchString(read(named[1])) {
				t.Errorf("%s names the heading %q, which %s does not have", alert[1], named[2], named[1])
			}
		}
	}
	if len(alerts) < 10 {
		t.Errorf("%d alerts: these are too few", len(alerts))
	}
}
