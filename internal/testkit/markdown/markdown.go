// Package markdown reads documents and finds their fenced blocks, for tests that check what
// documents show.
package markdown

import (
	"os"
	"path/filepath"
	"strings"
)

// Page is a document.
type Page struct{ Path, Text string }

// Pages reads the documents whose paths match a pattern, as filepath.Glob takes it, in the
// order of their paths.
func Pages(pattern string) (pages []Page, err error) {
	files, err := filepath.Glob(pattern)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pages = append(pages, Page{file, string(text)})
	}
	return pages, err
}

// Block is a fenced block of a document.
type Block struct {
	Above    string // the line above it
	Language string // what its first fence says: go, sh, or nothing
	Text     string // the lines within its fences
}

// Blocks returns the blocks of a document, in order. A fence is three backticks at
// the beginning of a line.
func Blocks(document string) []Block {
	var list []Block
	inside, above := false, ""
	for line := range strings.Lines(document) {
		switch language, fence := strings.CutPrefix(line, "```"); {
		case fence && inside:
			inside = false
		case fence:
			inside = true
			list = append(list, Block{Above: above, Language: strings.TrimSpace(language)})
		case inside:
			list[len(list)-1].Text += line
		}
		above = strings.TrimRight(line, "\r\n")
	}
	return list
}
