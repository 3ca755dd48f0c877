package markdown

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBlocks(t *testing.T) {
	got := Blocks("a\n```sh\none\n\n  two ```\n```\n<!-- why -->\n``` go\nthree\n```\nb\n```\n```\n")
	want := []Block{
		{Above: "a", Language: "sh", Text: "one\n\n  two ```\n"},
		{Above: "<!-- why -->", Language: "go", Text: "three\n"},
		{Above: "b"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
