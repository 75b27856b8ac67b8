package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// roundsTable shows how the relay spends its time.
func roundsTable(b *strings.Builder, list []entry) {
	first := true
	for _, e := range list {
		s := e.last
		if s.rounds == 0 {
			continue
		}
		if first {
			b.WriteString(
				"\n| relay | rows a round | ms a round: fetch | produce | settle | other |\n|---|---:|---:|---:|---:|---:|\n",
			)
			first = false
		}
		each := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(s.rounds) }
		fmt.Fprintf(
			b,
			"| %s | %.0f | %.2f | %.2f | %.2f | %.2f |\n",
			e.Name,
			s.all*s.took.Seconds()/float64(s.rounds),
			each(s.fetch),
			each(s.produce),
			each(s.settle),
			each(s.took-s.fetch-s.produce-s.settle),
		)
	}
}

func delayTable(b *strings.Builder, list []delayResult) {
	if len(list) == 0 {
		return
	}
	b.WriteString(
		"\n| ms from commit to the consumer | rows/s | reached | median | p99 | longest |\n|---|---:|---:|---:|---:|---:|\n",
	)
	for _, d := range list {
		fmt.Fprintf(
			b,
			"| %s | %d | %.0f | %.1f | %.1f | %.1f |\n",
			d.name,
			d.rate,
			d.reached,
			d.p50,
			d.p99,
			d.max,
		)
	}
}

// sizeTable has a row a minute, of the largest figures in it.
func sizeTable(b *strings.Builder, r *sizeResult) {
	if r == nil || len(r.samples) == 0 {
		return
	}
	fmt.Fprintf(
		b,
		"\n| outbox at %.0f rows/s, largest in this minute | heap kB | indexes kB | dead rows | waiting |\n|---|---:|---:|---:|---:|\n",
		r.rate,
	)
	for minute := range slices.Chunk(r.samples, int(time.Minute/sizeSample)) {
		most := minute[0]
		for _, s := range minute {
			most.heap, most.indexes = max(most.heap, s.heap), max(most.indexes, s.indexes)
			most.dead, most.waiting = max(most.dead, s.dead), max(most.waiting, s.waiting)
		}
		fmt.Fprintf(
			b,
			"| from %.0f s | %d | %d | %d | %d |\n",
			most.at.Seconds(),
			most.heap>>10,
			most.indexes>>10,
			most.dead,
			most.waiting,
		)
	}
	first, second := r.plateau()
	short := "yes"
	if r.longest >= longestTx {
		short = "**no**"
	}
	fmt.Fprintf(
		b,
		"\n%d rows passed through; heap and indexes were at most %d kB in the first half of the time and %d kB in the second; %d autovacuums. "+
			"The relay's longest transaction, looked for each %s: %.0f ms (wanted: < %.0f ms: %s).\n",
		r.rows,
		first>>10,
		second>>10,
		r.vacuums,
		sizeLook,
		r.longest.Seconds()*1000,
		longestTx.Seconds()*1000,
		short,
	)
}
