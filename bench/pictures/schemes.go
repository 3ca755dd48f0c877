package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// schemes are the drawings that explain, by file in docs/img. They come from no run: their
// numbers are those of the defaults.
var schemes = map[string]func() *canvas{
	"pieces":   pieces,
	"lookback": lookback,
	"shares":   shares,
	"outage":   outage,
	"lending":  lending,
}

// drawSchemes writes all of them.
func drawSchemes(context.Context, loadgen) error {
	for name, draw := range schemes {
		if err := os.WriteFile(filepath.Join("docs", "img", name+".svg"), []byte(draw().String()), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// pieces shows what runs where.
func pieces() *canvas {
	c := newCanvas(330, "What runs where", "Applications with the library, and quotad for other processes of a host, each hold a share in memory and call the provider. etcd stores the limit and the instances.")
	c.box(14, 44, 250, 120, paleHex, lineHex, "")
	c.words(139, 64, "middle", greyHex, "a host")
	c.box(34, 76, 210, 72, "#fff", blueHex, "Go application\nconsumer + coordinator\nits share, in memory")
	c.box(304, 44, 330, 120, paleHex, lineHex, "")
	c.words(469, 64, "middle", greyHex, "a host")
	c.box(320, 76, 122, 72, "#fff", blueHex, "quotad\nthe host's share,\nin memory")
	c.arrow(504, 112, 444, 112, true)
	c.words(474, 104, "middle", greyHex, "permits")
	c.box(506, 76, 112, 72, "#fff", lineHex, "Python,\nTypeScript,\nEnvoy")
	c.box(674, 76, 170, 72, "#fff", orangeHex, "the provider\nthat limits you")
	c.box(34, 234, 584, 66, "#fff", inkHex, "etcd, three members\nthe limit and the list of instances; no permit passes through it")
	c.arrow(139, 148, 139, 232, true)
	c.arrow(381, 148, 381, 232, true)
	c.words(147, 186, "start", greyHex, "changes, in milliseconds,")
	c.words(147, 203, "start", greyHex, "and proofs of freshness")
	// Calls go over the hosts' heads.
	c.line(244, 90, 284, 90, greyHex, false)
	c.line(284, 90, 284, 34, greyHex, false)
	c.line(284, 34, 759, 34, greyHex, false)
	c.arrow(759, 34, 759, 74, false)
	c.arrow(618, 112, 672, 112, false)
	c.words(646, 104, "middle", greyHex, "calls")
	c.box(674, 234, 170, 66, "#fff", inkHex, "quota-admin\nand the dashboard")
	c.arrow(674, 267, 620, 267, true)
	return c
}

// lookback shows from which views an instance's bound of a window comes.
func lookback() *canvas {
	c := newCanvas(300, "The lookback: each window has the smallest share since S before its start",
		"A time line. The share was 500 until 4 seconds, 333 from then on, and 400 from 9 seconds. Each window has the smallest share since S, three seconds, before its start.")
	const left, step, base = 60.0, 76.0, 190.0
	at := func(t float64) float64 { return left + step*t }
	high := func(share float64) float64 { return base - share*0.2 }
	// Windows of a second, and what each may issue.
	for w := range 10 {
		bound := 500.0
		if w >= 4 {
			bound = 333
		}
		fill := "#dbe9fb"
		if w == 7 {
			fill = "#a9cdf5"
		}
		c.box(at(float64(w)), high(bound), step, base-high(bound), fill, "#fff", "")
	}
	c.line(left, base, at(10), base, inkHex, false)
	for t := range 11 {
		c.line(at(float64(t)), base, at(float64(t)), base+5, inkHex, false)
		c.words(at(float64(t)), base+20, "middle", greyHex, fmt.Sprintf("%d s", t))
	}
	// The view's share at each moment.
	c.line(at(0), high(500), at(4), high(500), orangeHex, false)
	c.line(at(4), high(500), at(4), high(333), orangeHex, false)
	c.line(at(4), high(333), at(6.4), high(333), orangeHex, false)
	c.line(at(6.4), high(333), at(6.4), high(500), orangeHex, false)
	c.line(at(6.4), high(500), at(10), high(500), orangeHex, false)
	c.words(at(0)+6, high(500)-8, "start", orangeHex, "share by the newest view: 500")
	c.words(at(4.1), high(333)-8, "start", orangeHex, "one more instance: 333")
	c.words(at(6.5), high(500)-8, "start", orangeHex, "its key is gone: 500 again")
	c.words(at(7.5), base-18, "middle", inkHex, "333")
	c.words(at(0.5), base-18, "middle", inkHex, "500")
	// The lookback of window 7.
	c.arrow(at(8), base+44, at(4), base+44, true)
	c.line(at(7), base+34, at(7), base+54, greyHex, false)
	c.words(at(5.5), base+62, "middle", greyHex, "S = 3 s before the window")
	c.words(at(7.5), base+62, "middle", greyHex, "the window")
	c.words(at(5), base+86, "middle", inkHex, "lookback of the window from 7 s to 8 s: it held the views of 333 and of 500, so the bound is 333")
	return c
}

// shares shows the shares of a fleet through a join and a crash.
func shares() *canvas {
	c := newCanvas(330, "Shares of a limit of 1,200 permits a second: one instance joins, another one crashes",
		"Three instances have 400 each. A fourth joins at 2 seconds and has a share of 300 at 6 seconds, when the others shrink to 300. One crashes at 11 seconds. For 8 seconds its 300 are unused, then the three have 400 each.")
	const left, step, base = 56.0, 32.5, 280.0
	at := func(t float64) float64 { return left + step*t }
	high := func(permits float64) float64 { return base - permits/6 }
	type span struct {
		name     string
		from, to float64
		permits  float64
		fill     string
	}
	for _, stage := range [][]span{
		{{"A", 0, 6, 400, "#a9cdf5"}, {"B", 0, 6, 400, "#f6cfb0"}, {"C", 0, 6, 400, "#b9e0c3"}},
		{{"A", 6, 11, 300, "#a9cdf5"}, {"B", 6, 11, 300, "#f6cfb0"}, {"C", 6, 11, 300, "#b9e0c3"}, {"D", 6, 11, 300, "#d9c8f0"}},
		{{"A", 11, 19, 300, "#a9cdf5"}, {"B", 11, 19, 300, "#f6cfb0"}, {"C: unused", 11, 19, 300, "#fff"}, {"D", 11, 19, 300, "#d9c8f0"}},
		{{"A", 19, 24, 400, "#a9cdf5"}, {"B", 19, 24, 400, "#f6cfb0"}, {"D", 19, 24, 400, "#d9c8f0"}},
	} {
		sum := 0.0
		for _, s := range stage {
			stroke := "#fff"
			if s.fill == "#fff" {
				stroke = lineHex
			}
			c.box(at(s.from), high(sum+s.permits), step*(s.to-s.from), s.permits/6, s.fill, stroke, fmt.Sprintf("%s %g", s.name, s.permits))
			sum += s.permits
		}
	}
	c.line(left, high(1200), at(24), high(1200), inkHex, true)
	c.words(left-6, high(1200)+4, "end", inkHex, "1,200")
	c.words(left-6, base+4, "end", greyHex, "0")
	c.line(left, base, at(24), base, inkHex, false)
	for t := 0; t <= 24; t += 2 {
		c.words(at(float64(t)), base+18, "middle", greyHex, fmt.Sprintf("%d s", t))
	}
	mark := func(t float64, text string) {
		c.line(at(t), high(1200)-14, at(t), base, greyHex, true)
		c.words(at(t)+4, high(1200)-18, "start", greyHex, text)
	}
	mark(2, "D joins; it borrows")
	mark(6, "D has a share")
	mark(11, "C crashes")
	mark(16, "its lease ends")
	mark(19, "S is over")
	c.words(430, 322, "middle", greyHex, "A share grows only after everybody has had the time S to learn that it may: so the sum never exceeds the limit.")
	return c
}

// outage compares the two outage rules.
func outage() *canvas {
	c := newCanvas(290, "What an instance issues while etcd is away",
		"With hold the share stays as it is for the whole outage. With stop the instance issues nothing from 2.5 seconds after its last proof until etcd is back.")
	const left, step = 150.0, 34.0
	at := func(t float64) float64 { return left + step*t }
	c.box(at(5), 44, step*9, 196, "#fdecec", "#fdecec", "")
	c.words(at(9.5), 60, "middle", redHex, "etcd is away")
	lane := func(y float64, name, says string, spans ...float64) {
		c.words(left-12, y+20, "end", inkHex, name)
		c.words(left-12, y+38, "end", greyHex, says)
		for i := 0; i < len(spans); i += 2 {
			c.box(at(spans[i]), y, step*(spans[i+1]-spans[i]), 52, "#a9cdf5", "#a9cdf5", "")
		}
		c.line(left, y+52, at(20), y+52, inkHex, false)
	}
	lane(78, "hold", "the default", 0, 20)
	lane(166, "stop", "", 0, 7.5, 14.2, 20)
	c.words(at(9.5), 108, "middle", inkHex, "its share as before; no share grows")
	c.words(at(10.8), 196, "middle", inkHex, "nothing")
	c.line(at(7.5), 160, at(7.5), 222, greyHex, true)
	c.words(at(7.5), 156, "middle", greyHex, "2.5 s (freshness) after the last proof")
	for t := 0; t <= 20; t += 5 {
		c.words(at(float64(t)), 258, "middle", greyHex, fmt.Sprintf("%d s", t))
	}
	c.words(430, 280, "middle", greyHex, "If only some instances lose etcd: under stop the sum stays exact; under hold it can exceed the limit by their shares.")
	return c
}

// lending shows a window in which one instance is busy.
func lending() *canvas {
	c := newCanvas(320, "Lending in one window: a limit of 1,000, and shares of 250",
		"Four instances with a share of 250. A, B and C use 60 each and lend 180 each. D uses its 250 and borrows 540, which is 790.")
	const base, scale = 268.0, 0.25
	high := func(permits float64) float64 { return base - permits*scale }
	for i, name := range []string{"A", "B", "C"} {
		x := 90 + 130*float64(i)
		c.box(x, high(60), 80, 60*scale, "#a9cdf5", "#a9cdf5", "")
		c.box(x, high(240), 80, 180*scale, "#fff", blueHex, "lends 180")
		c.words(x+40, base-4, "middle", inkHex, "uses 60")
		c.words(x+40, base+20, "middle", inkHex, name)
	}
	const x = 640.0
	c.box(x, high(250), 80, 250*scale, "#a9cdf5", "#a9cdf5", "own 250")
	for i := range 3 {
		c.box(x, high(430+180*float64(i)), 80, 180*scale, "#d3e6fa", blueHex, "180")
	}
	c.words(x+40, base+20, "middle", inkHex, "D")
	c.words(x+92, high(790)+16, "start", inkHex, "issues 790")
	c.line(70, high(250), 740, high(250), greyHex, true)
	c.words(64, high(250)+4, "end", greyHex, "250")
	c.line(70, base, 740, base, inkHex, false)
	c.arrow(x-8, high(700), 440, high(420), false)
	c.words(520, high(640), "end", greyHex, "1. D asks, by a key in etcd")
	c.arrow(440, high(150), x-6, high(340), false)
	c.words(540, high(160), "start", greyHex, "2. they lend")
	c.words(430, 310, "middle", greyHex, "A lender charges itself before D learns of the loan, so the sum of what is issued never exceeds 1,000.")
	return c
}
