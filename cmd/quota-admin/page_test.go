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
	for page, least := range map[string]int{"choose.md": 12, "providers.md": 11, "settings.md": 3, "keys.md": 6} {
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
					if slices.Contains(args, "--keys") { // an app's accounts, where one account was before
						b = newBench(t, server)
					}
					args = append(args, "--create")
				case args[0] == "top":
					args = append(args, "--count", "1")
				}
				b.want(exitDone, args...)
				played++
			}
			if played < least {
				t.Errorf("%d commands: this test sees too little", played)
			}
		})
	}
}

// inWords is a command in a sentence, a table or an indented block.
var inWords = regexp.MustCompile("`quota-admin ([^`]+)`|(?m:^ +quota-admin (.+)$)")

// What the pages for operators have typed works, in the pages' order, for a provider with a limit per
// hour. Other tests play the commands of elsewhere.
func TestThePagesOfOperatorsAreFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := []string{"doctor", "dev", "dashboard", "roles"}
	for page, least := range map[string]int{"run.md": 20, "compare.md": 10} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("../../docs/" + page)
			if err != nil {
				t.Fatal(err)
			}
			b := newBench(t, server)
			b.want(exitDone, "set", "P", "1000/s,1000000/h")
			stdout, _ := b.want(exitDone, "get", "P", "-o", "json")
			first := regexp.MustCompile(`"revision": (\d+)`).FindStringSubmatch(stdout)[1]
			if page == "run.md" {
				b.want(exitDone, "set", "payments/charge", "100/s")
			}
			played := 0
			for _, m := range inWords.FindAllStringSubmatch(string(text), -1) {
				args := words(strings.Join(strings.Fields(strings.ReplaceAll(m[1]+m[2], `"`, "'")), " "))
				if slices.Contains(elsewhere, args[0]) || len(args) == 1 || slices.Contains(args, "set") && len(args) == 2 {
					continue // named, or played elsewhere
				}
				for i, arg := range args {
					args[i] = strings.NewReplacer("REV", first, "policies.yaml", "-", "5000/h", "1000000/h").Replace(arg)
					if arg == "N" {
						args[i] = "0"
					}
				}
				switch args[0] {
				case "top":
					args = append(args, "--count", "1")
				case "set":
					if page == "compare.md" { // each is for another reader
						b = newBench(t, server)
					}
				case "cancel":
					b.want(exitDone, "set", args[1], "400/s", "--at", "+5m")
				case "apply":
					document, _ := b.want(exitDone, "export")
					b.stdin = strings.NewReader(document)
				}
				b.want(exitDone, args...)
				played++
			}
			if played < least {
				t.Errorf("%d commands: this test sees too little", played)
			}
		})
	}
}
