package ops

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// partitionsView has the group, its members and its partitions.
type partitionsView struct {
	Group  part[groupState]
	Topics []topicView
	Lag    int64
	Own    bool // this process has a monitor
	More   int  // partitions that the monitor had no room for
	Charts []chart
}

// topicView is a topic with its partitions.
type topicView struct {
	Topic    string
	Retry    bool
	Lag      int64
	NotKnown int   // partitions without a lag
	Most     int64 // the greatest lag, for the bars
	Rows     []partitionRow
}

// partitionRow is a partition, as known by the brokers and by this process.
type partitionRow struct {
	Partition int32
	Kafka     *groupPartition // nil: the brokers were not asked
	Here      *partitionState // nil: not of this process
	Hidden    bool            // the members are not known
	Lag       int64           // -1: not known
	Level     string
	Note      string
	Spark     string
	Bar       int // percent of the greatest
}

func (h *Handler) showPartitions(v *visit) error {
	p := &partitionsView{Group: fromCell(v.context(), h.cells.group, howKafka), Own: h.src.monitor != nil}
	var here []partitionState
	if m := h.src.monitor; m != nil {
		here, p.More = m.parts.list(h.cfg.Consumer.Group)
		charts := m.activity(rangeShort).Charts
		for _, c := range charts {
			if c.ID == "throughput" || c.ID == "lag" {
				p.Charts = append(p.Charts, c)
			}
		}
	}
	p.join(h.now(), here)
	return h.show(v, 200, "partitions", "Partitions", liveEvery, p)
}

func (p *partitionsView) join(now time.Time, here []partitionState) {
	type where struct {
		topic     string
		partition int32
	}
	rows := map[where]*partitionRow{}
	retry := map[string]bool{}
	for i := range p.Group.Value.Partitions {
		k := &p.Group.Value.Partitions[i]
		rows[where{k.Topic, k.Partition}] = &partitionRow{
			Partition: k.Partition, Kafka: k, Lag: k.Lag,
			Hidden: p.Group.Value.MembersProblem != "",
		}
		retry[k.Topic] = k.Retry
	}
	for i := range here {
		id := where{here[i].Topic, here[i].Partition}
		if rows[id] == nil {
			rows[id] = &partitionRow{Partition: id.partition, Lag: here[i].Lag}
		}
		rows[id].Here = &here[i]
	}
	topics := map[string]*topicView{}
	for id, r := range rows {
		t := topics[id.topic]
		if t == nil {
			t = &topicView{Topic: id.topic, Retry: retry[id.topic]}
			topics[id.topic] = t
		}
		r.judge(now)
		t.Rows = append(t.Rows, *r)
		t.Lag += max(r.Lag, 0)
		if r.Lag < 0 {
			t.NotKnown++
		}
		t.Most = max(t.Most, r.Lag)
		p.Lag += max(r.Lag, 0)
	}
	for _, t := range topics {
		for i := range t.Rows {
			if t.Most > 0 && t.Rows[i].Lag > 0 {
				t.Rows[i].Bar = int(max(1, 100*t.Rows[i].Lag/t.Most))
			}
		}
		slices.SortFunc(
			t.Rows, func(a, b partitionRow) int { return cmp.Compare(a.Partition, b.Partition) },
		)
		p.Topics = append(p.Topics, *t)
	}
	slices.SortFunc(p.Topics, func(a, b topicView) int { return cmp.Compare(a.Topic, b.Topic) })
}

// silent is the time without news from a partition of this process after which the page shows that.
const silent = time.Minute

func (r *partitionRow) judge(now time.Time) {
	r.Level, r.Note = "ok", "moves"
	if r.Here != nil && len(r.Here.Samples) > 1 {
		values := make([]float64, len(r.Here.Samples))
		for i, lag := range r.Here.Samples {
			values[i] = float64(max(lag, 0))
		}
		r.Spark = spark(values)
	}
	switch {
	case r.Kafka != nil && r.Kafka.Problem != "":
		r.Level, r.Note, r.Lag = "warn", r.Kafka.Problem, -1
	case r.Kafka != nil && r.Kafka.Beyond:
		r.Level = "bad"
		r.Note = fmt.Sprintf(
			"committed %d is beyond the end %d: was the topic made anew?",
			*r.Kafka.Committed, r.Kafka.End,
		)
	case r.Here != nil && r.Here.Stalled > 0:
		r.Level, r.Note = "bad", "at rest for "+span(r.Here.Stalled)
	case r.Kafka != nil && r.Kafka.Member == "" && r.Here == nil && !r.Hidden:
		r.Level, r.Note = "bad", "no reader"
		if r.Kafka.Lag == 0 {
			r.Level = "warn"
		}
	case r.Here != nil && !r.Here.Told.IsZero() && now.Sub(r.Here.Told) > silent:
		r.Level, r.Note = "warn", "no news for "+span(now.Sub(r.Here.Told))
	case r.Lag == 0:
		r.Note = "has caught up"
	case r.Here == nil && r.Hidden:
		r.Level, r.Note = "info", "the reader is not known"
	case r.Here == nil:
		r.Level, r.Note = "info", "read by another process"
	}
}
