package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1) //nolint:gocritic // stop is not needed when the process ends
	}
}

// options are the flags of the command.
type options struct {
	only, match, without   string
	list, verbose, noCheck bool
	timeout                time.Duration
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.StringVar(&o.only, "only", "", "run the row with this name")
	flags.StringVar(&o.match, "match", "", "run the rows whose names match this pattern")
	flags.StringVar(&o.without, "without", "", "leave out rows that need one of these services, joined by commas")
	flags.BoolVar(&o.list, "list", false, "print the rows and run nothing")
	flags.BoolVar(&o.verbose, "v", false, "print the end of the output of each run")
	flags.BoolVar(&o.noCheck, "no-baseline", false, "do not run the tests on the unchanged code before and after")
	flags.DurationVar(&o.timeout, "timeout", 90*time.Second, "of the tests of one row")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rows, err := o.choose(mutants())
	if err != nil {
		return err
	}
	if o.list {
		list(rows)
		return nil
	}
	root, err := findRoot()
	if err != nil {
		return err
	}
	c := newChecker(root)
	for i := range rows {
		if err := c.mutant(&rows[i]); err != nil {
			return fmt.Errorf("row %s: %w", rows[i].name, err)
		}
	}
	r := &runner{root: root, timeout: o.timeout}
	if o.noCheck {
		return plant(ctx, r, rows, o.verbose)
	}
	if err := baseline(ctx, r, rows); err != nil {
		return fmt.Errorf("before the faults: %w", err)
	}
	planted := plant(ctx, r, rows, o.verbose)
	if err := baseline(ctx, r, rows); err != nil { // a service that has died refutes every fault
		return errors.Join(planted, fmt.Errorf("after the faults: %w", err))
	}
	return planted
}

// choose returns the rows that the flags ask for.
func (o *options) choose(all []mutant) ([]mutant, error) {
	match, err := regexp.Compile(o.match)
	if err != nil {
		return nil, err
	}
	left := strings.Split(o.without, ",")
	rows := slices.DeleteFunc(all, func(m mutant) bool {
		return o.only != "" && m.name != o.only || !match.MatchString(m.name) ||
			slices.ContainsFunc(m.tests.needs, func(s string) bool { return slices.Contains(left, s) })
	})
	if len(rows) == 0 {
		return nil, errors.New("no row is chosen; -list prints the names")
	}
	return rows, nil
}

func list(rows []mutant) {
	for _, m := range rows {
		fmt.Printf("%-40s %s\n%-40s %s %s %s\n", m.name, m.promise, "", m.tests.pkg, m.tests.run,
			strings.Join(m.tests.needs, " "))
	}
}

// baseline runs the tests of all rows on the unchanged code. A test that fails there, for want of a
// service or by chance, would refute every fault.
func baseline(ctx context.Context, r *runner, rows []mutant) error {
	type choice struct{ pkg, run string }
	seen := make(map[choice]bool)
	began := time.Now()
	for i := range rows {
		o := &rows[i].tests
		c := choice{o.pkg, o.run}
		if seen[c] {
			continue
		}
		seen[c] = true
		res, err := r.test(ctx, o)
		if err != nil {
			return err
		}
		fmt.Printf("%-12s %6.1f s  %s -run %s\n", "baseline", res.took.Seconds(), o.pkg, o.run)
		if res.verdict != survivor {
			return fmt.Errorf("%s -run %s: the tests are %s without a fault:\n%s",
				o.pkg, o.run, res.verdict, res.output)
		}
	}
	fmt.Printf("%d groups of tests pass on the unchanged code, in %s\n", len(seen),
		time.Since(began).Round(time.Second))
	return nil
}

// plant runs the rows and prints one line for each.
func plant(ctx context.Context, r *runner, rows []mutant, verbose bool) error {
	began := time.Now()
	counts := make(map[string]int)
	for i := range rows {
		m := &rows[i]
		res, err := r.mutant(ctx, m)
		if err != nil {
			return fmt.Errorf("row %s: %w", m.name, err)
		}
		word := string(res.verdict)
		switch {
		case m.harmless != "" && res.verdict == survivor:
			word = "harmless"
		case m.harmless != "" && (res.verdict == refuted || res.verdict == timedOut):
			word = "not harmless" // the row is wrong
		}
		counts[word]++
		fmt.Printf("%-12s %6.1f s  %-44s %s\n", word, res.took.Seconds(), m.name, first(res.failed))
		if verbose || res.verdict == invalid {
			fmt.Println(res.output)
		}
	}
	bad := counts[string(survivor)] + counts[string(invalid)] + counts["not harmless"]
	fmt.Printf("%d faults in %s: %d refuted, %d refuted by a time-out, %d harmless, %d survivors, %d invalid\n",
		len(rows), time.Since(began).Round(time.Second), counts[string(refuted)],
		counts[string(timedOut)], counts["harmless"], counts[string(survivor)], counts[string(invalid)])
	if bad > 0 {
		return fmt.Errorf("%d rows need work: write the missing test, or say why the fault is harmless", bad)
	}
	return nil
}

// first returns the test that failed first, fit for a line.
func first(failed []string) string {
	if len(failed) == 0 {
		return ""
	}
	return failed[0]
}

// findRoot returns the root of the repository: the nearest folder above with a .golangci.yml.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, ".golangci.yml")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("run it inside the repository")
		}
		dir = filepath.Dir(dir)
	}
}
