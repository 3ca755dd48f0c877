package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The drawings in docs/img are what `make pictures PICTURES=schemes` makes.
func TestSchemesAreDrawnByThisProgram(t *testing.T) {
	for name, draw := range schemes {
		file := filepath.Join("..", "..", "docs", "img", name+".svg")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != draw().String() {
			t.Errorf("%s is drawn otherwise: run make pictures PICTURES=schemes, and look at it", file)
		}
	}
}
