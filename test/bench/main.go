package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		logf("FAILED: %v", err)
		os.Exit(1)
	}
}

// logf prints progress to standard error. The result goes to standard output.
func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

// bench is one run of the program.
type bench struct {
	options
	lab     *lab
	sizes   sizes
	rows    []row
	results results
	last    string // the row with effects in the tables
	scope   string // the scope that remembers them
}

// results are the samples by row, one a round.
type results map[string][]sample

type options struct {
	quick, large, list bool
	names              string
	rounds             int
	jsonFile, markdown string
	cpuprofile         string
	sizeTakes          time.Duration
}

func start(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&o.quick, "quick", false, "the core rows, with fewer events, in one round")
	flags.BoolVar(&o.large, "large", false, "also with 10,000,000 events in the store")
	flags.BoolVar(&o.list, "list", false, "list the rows and end")
	flags.StringVar(
		&o.names,
		"rows",
		"",
		"only these rows, by `name`, separated by commas; \"latency\", \"store\", \"outbox\", \"delay\" and \"size\" are names too",
	)
	flags.IntVar(&o.rounds, "rounds", 0, "how often each row is run; default 3, or 1 with -quick")
	flags.StringVar(&o.jsonFile, "json", "bench.json", "`file` for the results")
	flags.StringVar(&o.markdown, "markdown", "bench.md", "`file` for the table")
	flags.StringVar(
		&o.cpuprofile,
		"cpuprofile",
		"",
		"write CPU and allocation profiles of this `row` to <row>.cpu.prof and <row>.mem.prof",
	)
	flags.DurationVar(
		&o.sizeTakes,
		"size",
		10*time.Minute,
		"for how long \"size\" watches the outbox",
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	b := &bench{options: o, sizes: fullSizes, results: make(results)}
	if o.quick {
		b.sizes = quickSizes
	}
	if b.rounds == 0 {
		b.rounds = 3
		if o.quick {
			b.rounds = 1
		}
	}
	if err := b.choose(); err != nil || o.list {
		return err
	}
	lab, err := openLab(ctx)
	if err != nil {
		return err
	}
	defer lab.close()
	b.lab = lab
	return b.runAll(ctx)
}

// choose takes the rows that are wanted.
func (b *bench) choose() error {
	all := allRows(b.sizes)
	ledger := storeRows(b.sizes, b.large)
	if b.list {
		for _, r := range slices.Concat(all, ledger) {
			fmt.Printf("%-26s %s\n", r.name, r.about)
		}
		return nil
	}
	switch {
	case b.names == "" && b.quick:
		b.rows = slices.DeleteFunc(all, func(r row) bool { return !r.core })
	case b.names == "":
		b.rows = slices.Concat(all, ledger)
	default:
		return b.named(slices.Concat(all, ledger))
	}
	return nil
}

const (
	nameLatency = "latency"
	nameStore   = "store"
	nameOutbox  = "outbox"
	nameDelay   = "delay"
	nameSize    = "size"
)

func (b *bench) named(all []row) error {
	for _, name := range strings.Split(b.names, ",") {
		found := name == nameLatency || name == nameDelay || name == nameSize
		for _, r := range all {
			if r.name == name || name == nameStore && r.fill > 0 ||
				name == nameOutbox && r.aggregates > 0 {
				b.rows = append(b.rows, r)
				found = true
			}
		}
		if !found {
			return fmt.Errorf("there is no row %q, see -list", name)
		}
	}
	return nil
}

// row returns a row by its name, chosen or not.
func (b *bench) row(name string) *row {
	for _, r := range slices.Concat(allRows(b.sizes), storeRows(b.sizes, true)) {
		if r.name == name {
			return &r
		}
	}
	return nil
}

// runAll runs all rows in rounds, and repeats rows that missed their ratio.
func (b *bench) runAll(ctx context.Context) error {
	before, err := b.lab.machine(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for round := range b.rounds {
		for i := range b.rows {
			logf("round %d of %d: %s", round+1, b.rounds, b.rows[i].name)
			failed = append(failed, b.sample(ctx, b.results, &b.rows[i]))
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	failed = append(failed, b.again(ctx))
	rep := &report{bench: b, machine: before}
	failed = append(failed, b.special(ctx, rep))
	return errors.Join(append(failed, rep.write())...)
}

// special measures latency, delay and size, which have no rate.
func (b *bench) special(ctx context.Context, rep *report) error {
	var failed []error
	if b.wants(nameLatency) {
		logf("latency")
		res, err := b.latency(ctx, b.sizes.latency)
		failed = append(failed, err)
		if err == nil {
			rep.latency = &res
		}
	}
	if b.wants(nameDelay) {
		logf("delay")
		res, err := b.delays(ctx)
		failed = append(failed, err)
		rep.delays = res
	}
	if b.wants(nameSize) {
		logf("size")
		res, err := b.size(ctx, b.sizeTakes)
		failed = append(failed, err)
		rep.size = &res
	}
	return errors.Join(failed...)
}

func (b *bench) wants(name string) bool {
	return b.names == "" && !b.quick || slices.Contains(strings.Split(b.names, ","), name)
}

func (b *bench) sample(ctx context.Context, into results, r *row) error {
	s, err := b.measure(ctx, r)
	if err != nil {
		logf("%v", err)
		return err
	}
	logf("  %.0f %s (%.1fs)", s.rate, r.unit, s.took.Seconds())
	into[r.name] = append(into[r.name], s)
	return nil
}

// again repeats rows that missed their ratio, once: a shared machine has bad seconds. A second miss
// fails the run.
func (b *bench) again(ctx context.Context) error {
	var failed []error
	for _, w := range b.results.missed() {
		second := make(results)
		logf("again, as %s reached less than %.2f x %s: ", w.row, w.enough(), w.against())
		for _, name := range []string{w.base, w.row} {
			if r := b.row(name); r != nil {
				if err := b.sample(ctx, second, r); err != nil {
					return err
				}
			}
		}
		first, _ := b.results.ratioOf(w.row, w.base, w.ideal)
		v, _ := second.ratioOf(w.row, w.base, w.ideal)
		if v < w.enough() {
			failed = append(
				failed,
				fmt.Errorf("SLOW: %s is %.2f and then %.2f x %s, wanted %.2f, at the least %.2f",
					w.row, first, v, w.against(), w.least, w.enough()),
			)
			continue
		}
		for name, s := range second {
			b.results[name] = append(b.results[name], s...)
		}
	}
	return errors.Join(failed...)
}
