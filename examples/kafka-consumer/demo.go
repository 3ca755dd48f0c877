package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// event is something that happens on the way.
type event struct {
	at   float64 // the part of the records that is done
	text string
	do   func(d *demo) error
}

// demo is one demonstration. Its methods are for one goroutine.
type demo struct {
	*config
	parts    *parts
	out      io.Writer
	producer *producer
	letters  letters
	members  []*running
	started  int // consumers so far
	began    time.Time
	events   []event // still to come
}

// demonstrate runs everything, and returns whether the promises were kept.
func demonstrate(ctx context.Context, c *config, out io.Writer) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	p, err := openParts(ctx, c)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	d := &demo{config: c, parts: p, out: out, letters: letters{seen: map[string]int{}}, events: c.script()}
	d.producer = &producer{
		kafka: p.kafka, topic: p.order.Topic, n: c.records, poison: c.poison,
		rate: c.demand * float64(c.limit.Permits) / c.limit.Window.Seconds(),
	}
	return d.run(ctx)
}

// script is what happens on the way.
func (c *config) script() []event {
	if c.calm {
		return c.extra
	}
	return append([]event{
		{0.25, "consumer-1 is killed", func(d *demo) error { return d.members[0].kill() }},
		{0.40, "another consumer joins", (*demo).add},
		{0.70, "the provider answers 429 for 2 s", func(d *demo) error { d.parts.provider.Overload(2 * time.Second); return nil }},
	}, c.extra...)
}

func (d *demo) run(ctx context.Context) (held bool, err error) {
	defer func() {
		for _, m := range d.members {
			if _, runs := m.report(); runs {
				err = errors.Join(err, m.kill())
			}
		}
	}()
	opts, err := d.kafka()
	if err != nil {
		return false, err
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	if err := d.letters.read(reading, opts, d.parts.order.Letters); err != nil {
		return false, err
	}
	d.began = time.Now()
	fmt.Fprintf(d.out, "%d records, %d partitions, limit %v; brokers %s; the provider's page: %s\n",
		d.records, d.partitions, d.limit, strings.Join(d.brokers, ","), d.parts.order.URL)
	for range d.config.members {
		if err := d.add(); err != nil {
			return false, err
		}
	}
	go d.producer.run(reading)
	done := d.watch(ctx)
	took := time.Since(d.began)
	if done == nil {
		done = d.leave(ctx)
	}
	r := d.result(took)
	r.write(d.out)
	return r.held(), done // what was seen is told also where the run failed
}

// add starts another consumer.
func (d *demo) add() error {
	o := d.parts.order
	d.started++
	o.Name = fmt.Sprintf("consumer-%d", d.started)
	m, err := o.start(d.args)
	if err != nil {
		return err
	}
	d.members = append(d.members, m)
	return nil
}

// watch shows how things stand and lets events happen, until every record is
// done.
func (d *demo) watch(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	header(d.out)
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return fmt.Errorf("not all records are done: %w", ctx.Err())
		case <-tick.C:
		}
		if err := d.producer.failed.Load(); err != nil {
			return fmt.Errorf("producing: %w", *err)
		}
		progress := d.progress()
		if progress >= 1 {
			d.row()
			return nil
		}
		if err := d.happen(progress); err != nil {
			return err
		}
		if n%10 == 0 {
			d.row()
			if err := d.alive(); err != nil {
				return err
			}
		}
	}
}

// progress is the part of the records that is done.
func (d *demo) progress() float64 {
	dead, _ := d.letters.counts()
	return float64(d.parts.provider.Totals().Processed+dead) / float64(d.records)
}

// happen lets the events happen whose time has come.
func (d *demo) happen(progress float64) error {
	var later []event
	for _, e := range d.events {
		if progress < e.at {
			later = append(later, e)
			continue
		}
		fmt.Fprintf(d.out, "%5.1f s  %s\n", time.Since(d.began).Seconds(), e.text)
		if err := e.do(d); err != nil {
			return fmt.Errorf("%s: %w", e.text, err)
		}
	}
	d.events = later
	return nil
}

// alive returns why a consumer ended, if one did that nobody killed.
func (d *demo) alive() error {
	for _, m := range d.members {
		if _, runs := m.report(); runs {
			continue
		}
		m.mu.Lock()
		err, killed := m.mu.err, m.mu.killed
		m.mu.Unlock()
		if !killed {
			return fmt.Errorf("%s ended early: %w", m.name, errors.Join(err, errors.New("see above")))
		}
	}
	return nil
}

// leave ends all consumers in good order.
func (d *demo) leave(ctx context.Context) error {
	for _, m := range d.members {
		m.leave()
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout+30*time.Second)
	defer cancel()
	var errs []error
	for _, m := range d.members {
		errs = append(errs, m.wait(ctx))
	}
	return errors.Join(errs...)
}

func (d *demo) result(took time.Duration) *result {
	r := &result{produced: d.producer.acked.Load(), provider: d.parts.provider.Totals(), took: took, window: d.limit.Window}
	r.dead, r.deadMore = d.letters.counts()
	for _, m := range d.members {
		last, _ := m.report()
		r.late += last.Member.Late
	}
	return r
}
