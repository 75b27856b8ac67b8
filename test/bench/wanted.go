package main

import (
	"fmt"
	"slices"
)

// wanted are the ratios that Idem must keep on every machine: the rate of row over the rate of
// base, in one run.
var wanted = []ratio{
	{row: "idem-onbatchtx", base: "sql-limit", least: 0.9, floor: 0.35},
	{row: "idem-onbatchtx", base: "watermill-dedup", least: 1.6, floor: 0.5},
	{row: "idem-onbatchtx-otel", base: "idem-onbatchtx", least: 0.95, floor: 0.75},
	{row: "franz-onbatchtx", base: "idem-onbatchtx", least: 1, floor: 0.6},
	{row: "franz-redis-on", base: "idem-redis-on", least: 1, floor: 0.6},
	{row: "idem-ontx", base: "naive-postgres", least: 7, floor: 2.5},
	{row: "franz-ontx", base: "franz-naive-postgres", least: 7, floor: 2.5, once: true},
	{row: "kafkago-ontx", base: "kafkago-naive-postgres", least: 7, floor: 2.5, once: true},
	{row: "watermill-ontx", base: "watermill-naive-postgres", least: 1, floor: 0.25, once: true},
	{row: "idem-ontx-single", base: "naive-postgres", least: 1, floor: 0.28},
	{row: "idem-ontx-shared", base: "naive-postgres-shared", least: 1.2},
	{row: "idem-ontx-mariadb", base: "naive-mariadb", least: 4, floor: 2},
	{row: "idem-ontx-sql-postgres", base: "naive-sql-postgres", least: 4, floor: 2, once: true},
	{row: "idem-redis-onbatch", base: "naive-redis", least: 7, floor: 2},
	{row: "idem-redis-onbatch", base: "redis-limit", least: 0.6, floor: 0.22},
	{row: "idem-redis-on", base: "naive-redis", least: 3, floor: 1.2},
	{row: "franz-redis-on", base: "franz-naive-redis", least: 3, floor: 0.7, once: true},
	{row: "idem-dynamo-on", base: "naive-dynamo", least: 0.5, floor: 0.3, once: true},
	{row: "idem-dynamo-on", base: "naive-dynamo-status", least: 1, floor: 0.6, once: true},
	{row: "idem-postgres-on", base: "naive-postgres", least: 4, floor: 2},
	{row: "idem-duplicates", base: "idem-onbatchtx", least: 3, floor: 1.5},
	{row: "readable-ordered-1e6", base: "readable-ordered-1e5", least: 0.95},
	{row: "readable-ordered-1e7", base: "readable-ordered-1e5", least: 0.95},
	{row: "readable-random-1e7", base: "readable-random-1e5", least: 0.8, floor: 0.4},
	{row: "compact-random-1e7", base: "compact-random-1e5", least: 0.8, floor: 0.4},
	{row: "relay", base: "skip-locked", least: 2, floor: 2.7},
	{row: "relay", base: "skip-locked-2000", least: 1, floor: 0.7},
	{row: "relay-hot", base: "skip-locked", least: 2, floor: 3},
	{row: "write-outbox", base: "write-naive", least: 0.95},
	{row: "write-outbox-notify", base: "write-naive", least: 0.9},
	{row: "slow-lanes", least: 0.95, ideal: 6 * 16 / slowHandler.Seconds()},
}

// addedLatency is how much later, in ms, the median effect may come than one commit by hand.
const addedLatency = 0.5

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
	once  bool // the rows run in the first round only; the others need the time
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

// ratioOf returns the median over the rounds in which both rows ran. ok is false without such a
// round. The ratio is one of deliveries; rows of one topic have the same ratio of effects.
func (r results) ratioOf(row, base string, ideal float64) (v float64, ok bool) {
	var each []float64
	for _, s := range r[row] {
		if base == "" {
			each = append(each, s.all/ideal)
		} else if b, ok := r.inRound(base, s.round); ok {
			each = append(each, s.all/b.all)
		}
	}
	return median(each), len(each) > 0
}

// inRound returns the sample of a row in one round. A row that failed has no sample.
func (r results) inRound(row string, round int) (sample, bool) {
	i := slices.IndexFunc(r[row], func(s sample) bool { return s.round == round })
	if i < 0 {
		return sample{}, false
	}
	return r[row][i], true
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

// verdict is a wanted ratio with the measured one.
type verdict struct {
	Row      string  `json:"row"`
	Against  string  `json:"against"`
	Wanted   float64 `json:"wanted"`
	Floor    float64 `json:"floor"` // a run fails below
	Measured float64 `json:"measured"`
	Reached  bool    `json:"reached"`
}

// verdicts returns the wanted ratios that were measured, in the order of wanted. Without one, the
// list is empty and not nil.
func (r results) verdicts() []verdict {
	list := []verdict{}
	for _, w := range wanted {
		if v, ok := r.ratioOf(w.row, w.base, w.ideal); ok {
			list = append(list, verdict{
				Row: w.row, Against: w.against(), Wanted: w.least, Floor: w.enough(),
				Measured: v, Reached: v >= w.least,
			})
		}
	}
	return list
}
