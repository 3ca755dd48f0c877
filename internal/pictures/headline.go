package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/quotient-limiter/quotient/internal/chart"
	"github.com/quotient-limiter/quotient/internal/load/picture"
)

// The size of a picture: as wide as a page of text.
const width, height = 860, 340

// headline is the picture that README.md begins with.
func headline(ctx context.Context, l *loadgen) error {
	r, err := l.run(ctx, "--processes", "4", "--crash", "6s", "--change", "18s=200000/s", "--change", "26s=300000/s", "--duration", "36s")
	if err != nil {
		return err
	}
	c := picture.Rate(r, "")
	c.Title = "96 instances under one limit: permits issued, per second"
	c.Hints = nil // an image has no pointing device
	return save("headline", &c)
}

func save(name string, c *chart.Chart) error {
	return os.WriteFile(filepath.Join("docs", "img", name+".svg"), []byte(c.Alone(width, height)), 0o600)
}
