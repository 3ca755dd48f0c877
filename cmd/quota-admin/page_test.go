package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// typed is what a page has a reader type: a command in an indented block, a set in a sentence or a
// table, or a document for apply.
var typed = regexp.MustCompile("(?m)^    quota-admin (.+)$|`quota-admin (set [^`]+)`|^((?:    policies:\n)(?:    .*\n)+)")

// The commands and documents of the pages that say how to set a limit work, one after the other.
func TestThePagesAreFollowed(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"choose.md", "keys.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("../../docs/" + page)
			if err != nil {
				t.Fatal(err)
			}
			b := newBench(t, server)
			played := 0
			for _, m := range typed.FindAllStringSubmatch(string(text), -1) {
				args := words(strings.Join(strings.Fields(strings.ReplaceAll(m[1]+m[2], `"`, "'")), " "))
				switch {
				case m[3] != "":
					b.stdin = strings.NewReader(m[3])
					args = []string{"apply", "-f", "-"}
				case args[0] == "set" && args[1] != "github":
					b = newBench(t, server)             // each is for another provider of the reader's
					if slices.Contains(args, "--for") { // it has a limit already
						b.want(exitDone, "set", args[1], "1000/s")
					}
				case args[0] == "set":
					args = append(args, "--create")
				case args[0] == "top":
					args = append(args, "--count", "1")
				}
				b.want(exitDone, args...)
				played++
			}
			if played < 5 {
				t.Errorf("%d commands: this test sees too little", played)
			}
		})
	}
}
