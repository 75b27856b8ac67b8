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
	var err error
	if task := os.Getenv(memoryChild); task != "" {
		err = consumeForMemory(ctx, task)
	} else {
		err = start(ctx, os.Args[1:])
	}
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
	plan    plan
	began   time.Time
	ran     int            // rounds that ran, with second attempts
	again   map[string]int // repeats by row, because of other processes
	last    string         // the row with effects in the tables
	scope   string         // the scope that remembers them
}

// results are the samples by row, at most one a round.
type results map[string][]sample

type options struct {
	quick, large, list bool
	names              string
	rounds             int
	jsonFile, markdown string
	svg                string
	cpuprofile         string
	sizeTakes          time.Duration
	churnEvents        int
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
		"only these rows, by `name`, separated by commas; \"latency\", \"store\", \"outbox\", \"delay\", \"memory\", \"size\" and \"churn\" are names too",
	)
	flags.IntVar(
		&o.rounds,
		"rounds",
		0,
		"how often each row is run; default 3, in the time that is left, and 1 for rows without a wanted ratio or with -quick",
	)
	flags.StringVar(&o.jsonFile, "json", "bench.json", "`file` for the results")
	flags.StringVar(&o.markdown, "markdown", "bench.md", "`file` for the table")
	flags.StringVar(&o.svg, "svg", "bench.svg", "`file` for the chart of the wanted ratios")
	flags.StringVar(
		&o.cpuprofile,
		"cpuprofile",
		"",
		"write CPU and allocation profiles of these `rows`, separated by commas, to <row>.cpu.prof and <row>.mem.prof",
	)
	flags.DurationVar(
		&o.sizeTakes,
		"size",
		0,
		"for how long the outbox is watched; default 10m with the row \"size\", or not at all",
	)
	flags.IntVar(
		&o.churnEvents,
		"churn",
		10_000_000,
		"how many events the row \"churn\" remembers for a week, and then for a second one",
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	b := &bench{
		options: o,
		sizes:   fullSizes,
		results: make(results),
		plan:    newPlan(&o),
		began:   time.Now(),
		again:   make(map[string]int),
	}
	if o.quick {
		b.sizes = quickSizes
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
	nameMemory  = "memory"
	nameChurn   = "churn"
)

func (b *bench) named(all []row) error {
	for _, name := range strings.Split(b.names, ",") {
		found := slices.Contains([]string{nameLatency, nameDelay, nameMemory, nameSize, nameChurn}, name)
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
	tree := sourceOf(ctx, ".") // before the results are written
	var failed []error
	var last time.Duration // of the compared rows, in the round before
	for round := 0; b.plan.begins(round, time.Since(b.began), last); round++ {
		last, b.ran = 0, round+1
		for i := range b.rows {
			r := &b.rows[i]
			if !b.plan.runs(r.name, round) {
				continue
			}
			logf("round %d of %d: %s", round+1, b.plan.rounds, r.name)
			began := time.Now()
			failed = append(failed, b.sample(ctx, b.results, r, round))
			if compared(r.name) {
				last += time.Since(began)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	rounds := b.ran
	failed = append(failed, b.secondAttempts(ctx))
	rep := &report{bench: b, machine: before, source: tree, rounds: rounds}
	failed = append(failed, b.special(ctx, rep))
	return errors.Join(append(failed, rep.write())...)
}

// special measures latency, delay, memory, size and churn, which have no rate.
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
	if b.wants(nameMemory) {
		logf("memory")
		res, err := b.memory(ctx)
		failed = append(failed, err)
		rep.memory = res
	}
	if watch := b.sizeWatch(); watch > 0 {
		logf("size")
		res, err := b.size(ctx, watch)
		failed = append(failed, err)
		rep.size = &res
	}
	if b.names != "" && b.wants(nameChurn) {
		logf("churn")
		res, err := b.churn(ctx, b.churnEvents)
		failed = append(failed, err)
		rep.churn = res
	}
	return errors.Join(failed...)
}

func (b *bench) wants(name string) bool {
	return b.names == "" && !b.quick || slices.Contains(strings.Split(b.names, ","), name)
}

// sample runs a row in a round. A disturbed run is repeated, and the last one counts.
func (b *bench) sample(ctx context.Context, into results, r *row, round int) error {
	s, err := b.measured(ctx, r)
	if err != nil {
		return err
	}
	for s.load.repeats(b.again[r.name], b.plan.timeLeft(time.Since(b.began))) {
		b.again[r.name]++
		logf("  again, as other processes took %.0f %% of the machine", s.load.percent)
		next, failed := b.measured(ctx, r)
		if err = failed; err != nil {
			break
		}
		s = next
	}
	s.round = round
	into[r.name] = append(into[r.name], s)
	return err
}

// measured runs a row and logs its rate or its error.
func (b *bench) measured(ctx context.Context, r *row) (sample, error) {
	s, err := b.measure(ctx, r)
	if err != nil {
		logf("%v", err)
		return s, err
	}
	logf("  %.0f %s (%.1fs)", s.rate, r.unit, s.took.Seconds())
	return s, nil
}

// secondAttempts repeats rows that missed their ratio, once: a shared machine has bad seconds. A
// second miss fails the run. Each attempt is a round of its own.
func (b *bench) secondAttempts(ctx context.Context) error {
	var failed []error
	for _, w := range b.results.missed() {
		second, round := make(results), b.ran
		b.ran++
		logf("again, as %s reached less than %.2f x %s: ", w.row, w.enough(), w.against())
		for _, name := range []string{w.base, w.row} {
			if r := b.row(name); r != nil {
				if err := b.sample(ctx, second, r, round); err != nil {
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
