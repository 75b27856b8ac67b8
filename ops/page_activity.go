package ops

import "time"

// timeRange is the part of the past that is drawn.
type timeRange struct {
	Name, Text string
	Step       time.Duration // of one value that is drawn
	Slots      int           // of the ring
	Join       int           // slots that make one value
}

var (
	rangeShort = timeRange{"5m", "5 minutes", 5 * time.Second, keptSeconds, 5}
	rangeHour  = timeRange{"1h", "1 hour", time.Minute, 60, 1}
	rangeLong  = timeRange{"6h", "6 hours", 5 * time.Minute, keptMinutes, 5}
)

var timeRanges = []timeRange{rangeShort, rangeHour, rangeLong}

// activityView has the counts of the monitor.
type activityView struct {
	Range   timeRange
	Ranges  []timeRange
	Began   time.Time
	Total   counts
	Recent  counts  // of the last five minutes
	Rate    float64 // deliveries in a second, over the last ten
	LastAge time.Duration

	Charts          []chart
	SparkDeliveries string
	SparkDuplicates string
	Kinds           []kindRow
	Notices         []notice
}

// kindRow is a line of the table of all counts.
type kindRow struct {
	ID, Name, What string
	Recent, Total  uint64
}

// Duplicates in this process, for the template.
func (a *activityView) Duplicates() uint64 { return a.Total[kindDuplicate] }

func (h *Handler) showActivity(v *visit) error {
	if h.src.monitor == nil {
		return h.show(v, 200, "activity", "Activity", 0, missing[*activityView](howMonitor))
	}
	chosen := rangeShort
	for _, r := range timeRanges {
		if v.query("range") == r.Name {
			chosen = r
		}
	}
	a := h.src.monitor.activity(chosen)
	a.Notices = h.src.monitor.notices.list(maxNotices)
	return h.show(
		v, 200, "activity", "Activity", liveEvery, part[*activityView]{Value: a, At: h.now()},
	)
}

// joined reads the ring of a range and joins neighbours.
func (m *Monitor) joined(r timeRange) []sample {
	ring, now := m.minutes, minuteOf(m.second())
	if r.Step < time.Minute {
		ring, now = m.seconds, m.second()
	}
	last := ring.last(now-1, r.Slots) // the present one is not over
	all := make([]sample, 0, len(last)/r.Join)
	for ; len(last) >= r.Join; last = last[r.Join:] {
		one := sample{noLag: true}
		for i := range last[:r.Join] {
			one.counts.add(&last[i].counts)
			if !last[i].noLag {
				one.lag, one.noLag = last[i].lag, false
			}
		}
		all = append(all, one)
	}
	for i := 1; i < len(all); i++ { // a missing value has not changed
		if all[i].noLag && !all[i-1].noLag {
			all[i].lag, all[i].noLag = all[i-1].lag, false
		}
	}
	return all
}

func (m *Monitor) activity(r timeRange) *activityView {
	all := m.joined(r)
	a := &activityView{
		Range: r, Ranges: timeRanges, Began: m.began, Total: m.totals(),
		LastAge: time.Duration(m.age.Load()),
	}
	for _, s := range m.seconds.last(m.second(), keptSeconds) {
		a.Recent.add(&s.counts)
	}
	now := m.second()
	ten := m.seconds.last(now-1, 10) // the present second is not over
	for i := range ten {
		a.Rate += float64(ten[i].counts[kindDelivery]) / 10
	}
	values := func(of func(*sample) uint64) []float64 {
		list := make([]float64, len(all))
		for i := range all {
			list[i] = float64(of(&all[i]))
		}
		return list
	}
	rates := func(of func(*sample) uint64) []float64 {
		list := values(of)
		for i := range list {
			list[i] /= r.Step.Seconds()
		}
		return list
	}
	one := func(k kind) func(*sample) uint64 { return func(s *sample) uint64 { return s.counts[k] } }
	copies := func(s *sample) uint64 { return s.copies() }
	lag := make([]float64, len(all))
	for i := range all {
		lag[i] = float64(all[i].lag)
	}
	a.Charts = []chart{
		lineChart(
			"throughput", "Throughput", "events a second", r.Step,
			series{Name: "deliveries", Class: "c1", Values: rates(one(kindDelivery))},
			series{Name: "handled", Class: "c2", Values: rates(one(kindHandled))},
		),
		barChart(
			"duplicates", "Duplicates skipped", "each "+span(r.Step), r.Step,
			series{Name: "the same record again", Class: "c1", Values: values(one(kindSame))},
			series{Name: "a copy", Class: "c3", Values: values(copies)},
		),
		barChart(
			"failures", "Failures", "each "+span(r.Step), r.Step,
			series{Name: "failed runs", Class: "c4", Values: values(one(kindFailed))},
			series{Name: "dead letters", Class: "c5", Values: values(one(kindDeadLetter))},
		),
		lineChart(
			"lag", "Lag of this process", "records", r.Step,
			series{Name: "lag", Class: "c1", Values: lag},
		),
	}
	a.SparkDeliveries, a.SparkDuplicates = spark(
		values(one(kindDelivery)),
	), spark(
		values(one(kindDuplicate)),
	)
	a.Kinds = kindRows(&a.Recent, &a.Total)
	return a
}

// kindRows returns the table of all kinds.
func kindRows(recent, total *counts) []kindRow {
	return []kindRow{
		{
			"deliveries", "Deliveries settled",
			"one for each fetch, with any result", recent[kindDelivery],
			total[kindDelivery],
		},
		{
			"handled", "Handled", "the handler succeeded", recent[kindHandled],
			total[kindHandled],
		},
		{
			"same", "Duplicates: the same record",
			"delivered again, after a rebalance, a restart or a rewind", recent[kindSame],
			total[kindSame],
		},
		{
			"copy", "Duplicates: a copy",
			"another record of the same event, such as a producer's repeat", recent.copies(),
			total.copies(),
		},
		{
			"failed-runs", "Failed runs",
			"the handler returned an error, panicked or ran out of time", recent[kindFailed],
			total[kindFailed],
		},
		{
			"retries", "Retries", "attempts that follow, in place or later", recent[kindRetry],
			total[kindRetry],
		},
		{
			"deferred-behind", "Waiting behind another",
			"deferred in the order of their Kafka key, without having failed", recent[kindBehind],
			total[kindBehind],
		},
		{
			"dead", "Dead letters", "given up, and acknowledged by the dead-letter topic",
			recent[kindDeadLetter], total[kindDeadLetter],
		},
		{
			"skipped", "Skipped", "tombstones, and types without a handler",
			recent[kindSkipped], total[kindSkipped],
		},
	}
}
