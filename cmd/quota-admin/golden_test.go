package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/internal/testkit/golden"
)

// TestGolden runs all scenes in one go on an etcd of its own, so that revisions
// are the same each time.
func TestGolden(t *testing.T) {
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			// One for each: a lease of one scene that ends is a revision in the next.
			cluster, client := etcdtest.New(t, embedded.Options{})
			b := newBench(t, cluster)
			b.prefix = "/golden/" + s.name + "/"
			b.env["QUOTIENT_PREFIX"] = b.prefix
			if s.prepare != nil {
				s.prepare(b, client)
			}
			golden.Check(t, s.name+".golden", s.play(b))
		})
	}
}

// play returns the record of a scene.
func (s scene) play(b *bench) string {
	var text strings.Builder
	for line := range strings.Lines(strings.TrimSpace(s.commands)) {
		for _, args := range variants(words(strings.TrimSpace(line))) {
			revisionsIn(b, args)
			code, stdout, stderr := b.call(args...)
			fmt.Fprintf(&text, "$ quota-admin %s\n%s", spell(args), stdout)
			for line := range strings.Lines(stderr) {
				fmt.Fprintf(&text, "2> %s", line)
			}
			fmt.Fprintf(&text, "exit %d\n\n", code)
		}
	}
	return normalise(text.String())
}

// revisionsIn replaces @n by the revision of the n-th change of payments/charge.
func revisionsIn(b *bench, args []string) {
	for i, arg := range args {
		n, ok := strings.CutPrefix(arg, "@")
		if !ok {
			continue
		}
		stdout, _ := b.want(exitDone, "history", "payments/charge", "-o", "json")
		var h historyJSON
		if err := json.Unmarshal([]byte(stdout), &h); err != nil {
			b.t.Fatal(err)
		}
		k, err := strconv.Atoi(n)
		if err != nil {
			b.t.Fatal(err)
		}
		args[i] = fmt.Sprint(h.Changes[len(h.Changes)-k].Revision)
	}
}

// variants returns the command once for each format where it ends with -o *.
func variants(args []string) [][]string {
	if args[len(args)-1] != "*" {
		return [][]string{args}
	}
	plain := args[:len(args)-2]
	all := [][]string{plain}
	for _, format := range []string{"json", "yaml"} {
		all = append(all, append(append([]string{}, plain...), "-o", format))
	}
	return all
}

var word = regexp.MustCompile(`'[^']*'|\S+`)

// words splits a line as a shell does, as far as it is needed here.
func words(line string) []string {
	args := word.FindAllString(line, -1)
	for i := range args {
		args[i] = strings.Trim(args[i], "'")
	}
	return args
}

// spell is the reverse of words.
func spell(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		if quoted[i] = arg; arg == "" || strings.ContainsRune(arg, ' ') {
			quoted[i] = "'" + arg + "'"
		}
	}
	return strings.Join(quoted, " ")
}

var instant = regexp.MustCompile(`20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-9:]{8}(\.[0-9]+)?Z`)

// normalise replaces the instants of this run, which all lie after fixed.
func normalise(text string) string {
	return instant.ReplaceAllStringFunc(text, func(at string) string {
		if at < fixed.Format(time.RFC3339) {
			return at
		}
		return fixed.Format(time.RFC3339)
	})
}

// fixed stands for every instant of the run itself.
var fixed = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
