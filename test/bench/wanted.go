package main

import "fmt"

// wanted are the ratios that Idem must keep on every machine: the rate of row over the rate of
// base, in one run.
var wanted = []ratio{
	{row: "idem-onbatchtx", base: "sql-limit", least: 0.85, floor: 0.3},
	{row: "idem-onbatchtx", base: "watermill-dedup", least: 2, floor: 0.5},
	{row: "idem-onbatchtx-otel", base: "idem-onbatchtx", least: 0.95, floor: 0.75},
	{row: "idem-ontx", base: "naive-postgres", least: 5, floor: 2},
	{row: "idem-ontx-shared", base: "naive-postgres-shared", least: 1},
	{row: "idem-redis-onbatch", base: "naive-redis", least: 6, floor: 2.5},
	{row: "idem-redis-onbatch", base: "redis-limit", least: 0.6, floor: 0.3},
	{row: "idem-redis-on", base: "naive-redis", least: 3, floor: 1.5},
	{row: "idem-duplicates", base: "idem-onbatchtx", least: 3, floor: 1.4},
	{row: "readable-ordered-1e6", base: "readable-ordered-1e5", least: 0.85},
	{row: "readable-ordered-1e7", base: "readable-ordered-1e5", least: 0.85},
	{row: "relay", base: "skip-locked", least: 1, floor: 0.6},
	{row: "relay-1000", base: "skip-locked", least: 1, floor: 0.5},
	{row: "slow-lanes", least: 0.9, ideal: 6 * 16 / slowHandler.Seconds()},
}

// addedLatency is how much later, in ms, the median effect may come than one commit by hand.
const addedLatency = 1.0

// tolerance is how much of a ratio is enough on a machine that does other things too.
const tolerance = 2.0 / 3

// ratio is a wanted ratio, to the rate of another row or to the ideal rate.
type ratio struct {
	row, base string
	least     float64
	// A run fails below floor. Zero: the wanted ratio with the tolerance. A floor is set where
	// consumer, broker and servers share two cores and the wanted ratio is out of reach;
	// docs/benchmarks.md has the limits.
	floor float64
	ideal float64
}

// enough returns the ratio below which a run fails.
func (w ratio) enough() float64 {
	if w.floor > 0 {
		return w.floor
	}
	return w.least * tolerance
}

func (w ratio) against() string {
	if w.base == "" {
		return fmt.Sprintf("ideal (%.0f/s)", w.ideal)
	}
	return w.base
}

// ratioOf returns the median over the rounds. ok is false if the rows did not run. The ratio is one
// of deliveries; rows of one topic have the same ratio of effects.
func (r results) ratioOf(row, base string, ideal float64) (v float64, ok bool) {
	a, b := r[row], r[base]
	n := len(a)
	if base != "" {
		n = min(n, len(b))
	}
	each := make([]float64, n)
	for i := range each {
		if base == "" {
			each[i] = a[i].all / ideal
		} else {
			each[i] = a[i].all / b[i].all
		}
	}
	return median(each), n > 0
}

// missed returns the wanted ratios that are not reached; for those with a floor, the ones below the
// floor.
func (r results) missed() (missed []ratio) {
	for _, w := range wanted {
		if v, ok := r.ratioOf(w.row, w.base, w.ideal); ok && v < w.enough() {
			missed = append(missed, w)
		}
	}
	return missed
}
