package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// report writes the measurements: a document for programs, a table and a chart for people.
type report struct {
	bench   *bench
	machine machine
	source  source
	rounds  int // without second attempts
	latency *latencyResult
	delays  []delayResult
	memory  []memoryResult
	size    *sizeResult
	churn   []churnResult
}

// entry is a row of the list.
type entry struct {
	Name   string             `json:"name"`
	Unit   string             `json:"unit"`
	Median float64            `json:"median"`
	Min    float64            `json:"min"`
	Max    float64            `json:"max"`
	Ratios map[string]float64 `json:"ratios"` // to other rows, or to the ideal rate
	Allocs float64            `json:"allocs_per_delivery"`
	Bytes  float64            `json:"bytes_per_delivery"`
	Client float64            `json:"client_cpu_us_per_delivery"`
	Server float64            `json:"postgres_cpu_us_per_delivery"`
	Calls  float64            `json:"events_per_call,omitempty"` // of a batch handler

	Samples   int      `json:"samples"`                  // one a round
	Load      *float64 `json:"others_percent,omitempty"` // largest of the samples; nil: unknown
	Repeated  int      `json:"repeated,omitempty"`       // runs that do not count
	Disturbed int      `json:"disturbed,omitempty"`      // samples

	about string
	last  sample
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func (r *report) entries() []entry {
	var list []entry
	for _, row := range r.bench.rows {
		samples := r.bench.results[row.name]
		if len(samples) == 0 {
			continue
		}
		of := func(get func(sample) float64) (v []float64) {
			for _, s := range samples {
				v = append(v, get(s))
			}
			return v
		}
		rates := of(func(s sample) float64 { return s.rate })
		e := entry{
			Name:   row.name,
			Unit:   row.unit,
			about:  row.about,
			Median: median(rates),
			Min:    slices.Min(rates),
			Max:    slices.Max(rates),
		}
		e.Allocs = median(of(func(s sample) float64 { return s.allocs }))
		e.Bytes = median(of(func(s sample) float64 { return s.bytes }))
		e.Client = median(of(func(s sample) float64 { return float64(s.client) / 1000 }))
		e.Server = median(of(func(s sample) float64 { return float64(s.server) / 1000 }))
		e.Calls = median(of(func(s sample) float64 { return s.perCall }))
		e.last = samples[len(samples)-1]
		e.Samples, e.Repeated = len(samples), r.bench.again[row.name]
		most, disturbed := mostLoad(samples)
		if e.Disturbed = disturbed; most.known {
			e.Load = &most.percent
		}
		e.Ratios = r.ratios(row)
		list = append(list, e)
	}
	return list
}

// ratios returns the wanted ratios of a row, and those to common code written by hand.
func (r *report) ratios(of row) map[string]float64 {
	ratios := make(map[string]float64)
	for _, base := range of.bases() {
		if v, ok := r.bench.results.ratioOf(of.name, base, 0); ok && of.name != base {
			ratios[base] = v
		}
	}
	for _, w := range wanted {
		if v, ok := r.bench.results.ratioOf(of.name, w.base, w.ideal); ok && w.row == of.name {
			ratios[w.against()] = v
		}
	}
	return ratios
}

// bases are the rows that it is compared with, beside the wanted ratios.
func (r row) bases() []string {
	switch {
	case r.check == inTopic:
		return []string{"skip-locked", "skip-locked-1000", "broker-limit"}
	case r.empty:
		return []string{"write-alone", "write-naive"}
	case r.check == inOutbox:
		return []string{"idem-ontx"}
	default:
		return []string{"naive-postgres", "naive-redis"}
	}
}

func (r *report) write() error {
	list := r.entries()
	text := r.markdown(list)
	fmt.Print(text)
	data, err := json.MarshalIndent(r.document(list), "", "  ")
	if err != nil {
		return err
	}
	chart := ratioChart(r.bench.results.verdicts(), r.caption())
	o := &r.bench.options
	return errors.Join(
		os.WriteFile(o.jsonFile, append(data, '\n'), 0o644),
		os.WriteFile(o.markdown, []byte(text), 0o644),
		os.WriteFile(o.svg, []byte(chart), 0o644),
	)
}

func (r *report) markdown(list []entry) string {
	var b strings.Builder
	m, s := r.machine, r.bench.sizes
	fmt.Fprintf(
		&b,
		"%s, %d cores, which Kafka %s, Postgres %s, Redis %s and the consumer share; %s.\n",
		m.cpu,
		m.cores,
		m.kafka,
		m.postgres,
		m.redis,
		m.goVersion,
	)
	fmt.Fprintf(
		&b,
		"fsync of 8 kB: %s; smallest Postgres commit: %s (medians of %d).\n",
		m.fsync,
		m.commit,
		syncs,
	)
	fmt.Fprintf(
		&b,
		"Topics of %d to %d deliveries, 20 %% of them copies at a random distance, 6 partitions, JSON of %d bytes. Rounds: %s.\n\n",
		s.slow,
		s.bulk,
		payloadSize(),
		r.roundsText(),
	)
	rowsTable(&b, list)
	r.wantedTable(&b)
	storeTable(&b, list)
	roundsTable(&b, list)
	delayTable(&b, r.delays)
	memoryTable(&b, r.memory)
	sizeTable(&b, r.size)
	churnTable(&b, r.churn)
	if l := r.latency; l != nil {
		fmt.Fprintf(
			&b,
			"\n| latency at %d events/s, ms from production to commit | median | p99 |\n|---|---:|---:|\n",
			latencyRate,
		)
		fmt.Fprintf(
			&b,
			"| by hand, one transaction an event | %.2f | %.2f |\n| OnTx | %.2f | %.2f |\n| added (wanted: < %.1f) | %.2f | %.2f |\n",
			l.Naive50,
			l.Naive99,
			l.Idem50,
			l.Idem99,
			addedLatency,
			l.Idem50-l.Naive50,
			l.Idem99-l.Naive99,
		)
	}
	return b.String()
}

func rowsTable(b *strings.Builder, list []entry) {
	if len(list) == 0 {
		return
	}
	b.WriteString(
		"| row | what | median | unit | min - max | ratios | CPU us / delivery: client | Postgres | allocations / delivery | bytes / delivery | others' load |\n|---|---|---:|---|---|---|---:|---:|---:|---:|---|\n",
	)
	for _, e := range list {
		if e.Calls > 0 {
			e.about += fmt.Sprintf(" (%.0f events a call)", e.Calls)
		}
		fmt.Fprintf(
			b,
			"| %s | %s | %s | %s | %s - %s | %s | %.1f | %.1f | %.1f | %.0f | %s |\n",
			e.Name,
			e.about,
			thousands(e.Median),
			e.Unit,
			thousands(
				e.Min,
			),
			thousands(e.Max),
			ratioText(e.Ratios),
			e.Client,
			e.Server,
			e.Allocs,
			e.Bytes,
			e.loadText(),
		)
	}
}

func (r *report) wantedTable(b *strings.Builder) {
	list := r.bench.results.verdicts()
	if len(list) > 0 {
		b.WriteString("\n| wanted | against | at least | measured | |\n|---|---|---:|---:|---|\n")
	}
	for _, v := range list {
		verdict := "yes"
		if !v.Reached {
			verdict = "**no**"
		}
		fmt.Fprintf(b, "| %s | %s | %.2f | %.2f | %s |\n", v.Row, v.Against, v.Wanted, v.Measured, verdict)
	}
}

func storeTable(b *strings.Builder, list []entry) {
	first := true
	for _, e := range list {
		if e.last.store == 0 {
			continue
		}
		if first {
			b.WriteString(
				"\n| store | bytes per remembered event | of them indexes |\n|---|---:|---:|\n",
			)
			first = false
		}
		fmt.Fprintf(b, "| %s | %.0f | %.0f |\n", e.Name, e.last.store, e.last.indexes)
	}
}

func memoryTable(b *strings.Builder, list []memoryResult) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "\n| consumer of %d partitions with a backlog | largest resident size, MB (wanted: < %d) |\n|---|---:|\n",
		memoryPartitions, wantedMemory)
	for _, m := range list {
		fmt.Fprintf(b, "| %s | %.0f |\n", m.About, m.Peak)
	}
}

func ratioText(ratios map[string]float64) string {
	var parts []string
	for name, v := range ratios {
		parts = append(parts, fmt.Sprintf("%.2f x %s", v, name))
	}
	slices.Sort(parts)
	return strings.Join(parts, "<br>")
}

// thousands writes 12345.6 as 12,346.
func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func payloadSize() int {
	list, _ := spec{deliveries: 1, partitions: 1}.generate()
	r, err := list[0].record("")
	if err != nil {
		return 0
	}
	return len(r.Value)
}
