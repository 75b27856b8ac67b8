package ops

import (
	"cmp"
	"time"

	"github.com/idem-go/idem/internal/words"
)

// startView is the first page: a question, and the problems that need attention.
type startView struct {
	Monitor *activityView // nil without one
	Glance  []tile
	Alerts  []alert
	Unknown []string // sources without an answer
	Notices []notice
	Types   bool
}

// tile is one figure at a glance.
type tile struct {
	Name, Value, Unit, Note string
	Level                   string // ok, warn, bad, or empty: neither good nor bad
	Link                    string
	Spark                   string
	ID                      string
}

// alert is a problem that needs attention.
type alert struct {
	Level, Title, Text, Link, LinkText string
}

func (h *Handler) showStart(v *visit) error {
	ctx := v.context()
	var (
		group    part[groupState]
		claims   part[[]storeClaims]
		deferred part[deferredState]
		box      part[outboxState]
	)
	together(
		func() { group = fromCell(ctx, h.cells.group, howKafka) },
		func() { claims = fromCell(ctx, h.cells.claims, howStore) },
		func() { deferred = fromCell(ctx, h.cells.deferred, howStore) },
		func() { box = fromCell(ctx, h.cells.outbox, howOutbox) },
	)
	s := &startView{}
	if m := h.src.monitor; m != nil {
		s.Monitor = m.activity(rangeShort)
		s.Notices = m.notices.list(8)
		h.glanceMonitor(s, m)
	}
	s.glanceGroup(group)
	if group.OK() {
		s.glanceDeadLetters(&group.Value, &h.watch, h.now())
	}
	s.glanceClaims(claims)
	s.glanceDeferred(deferred)
	s.glanceOutbox(box)
	return h.show(v, 200, "start", "Look up an event", liveEvery, s)
}

func (h *Handler) glanceMonitor(s *startView, m *Monitor) {
	a := s.Monitor
	s.Glance = append(
		s.Glance,
		tile{
			ID:    "deliveries",
			Name:  "Deliveries",
			Value: rate(a.Rate),
			Unit:  "/s",
			Note: words.Number(
				int64(a.Total[kindDelivery]),
			) + " since " + span(
				time.Since(m.began),
			) + " ago",
			Link:  "activity",
			Spark: a.SparkDeliveries,
		},
		tile{
			ID: "duplicates", Name: "Duplicates skipped",
			Value: words.Number(int64(a.Total[kindDuplicate])),
			Note:  percent(a.Total[kindDuplicate], a.Total[kindDelivery]) + " of deliveries",
			Link:  "activity#duplicates", Spark: a.SparkDuplicates,
		},
	)
	failed := tile{
		ID: "failed", Name: "Failed runs", Value: words.Number(int64(a.Recent[kindFailed])),
		Unit: "in 5 min", Note: words.Count(int(a.Recent[kindRetry]), "retry") + " followed",
		Link: "activity#failures", Level: "ok",
	}
	if a.Recent[kindFailed] > 0 {
		failed.Level = "warn"
	}
	s.Glance = append(s.Glance, failed)
	lag, assigned, stalled := m.parts.sum(h.cfg.Consumer.Group)
	if stalled > 0 {
		s.Alerts = append(
			s.Alerts,
			alert{
				"bad", words.Count(stalled, "partition") + " at rest",
				"There is something to do, and nothing moves.", "partitions", "See which",
			},
		)
	}
	if h.cells.group == nil {
		s.Glance = append(
			s.Glance,
			tile{
				ID: "lag", Name: "Lag", Value: words.Number(lag), Unit: "records",
				Note: words.Count(assigned, "partition") + " in this process", Link: "partitions",
			},
		)
	}
}

func (s *startView) unknown(what, problem string) {
	if problem != "" {
		s.Unknown = append(s.Unknown, what+": "+problem)
	}
}

func (s *startView) glanceGroup(p part[groupState]) {
	s.unknown("Kafka", p.Problem)
	if !p.OK() {
		return
	}
	g := &p.Value
	members := words.Count(len(g.Members), "member")
	if g.MembersProblem != "" {
		members = "members not known"
		s.unknown("Kafka", "the members are not known: "+g.MembersProblem)
	}
	sum := g.lag()
	t := tile{
		ID: "lag", Name: "Lag", Value: words.Number(sum.Lag), Unit: "records",
		Note: words.Count(len(g.Partitions), "partition") + ", " + members, Link: "partitions",
	}
	if sum.NotKnown > 0 {
		t.Note = words.Count(sum.NotKnown, "partition") + " not known, " + members
		s.unknown("Kafka", "the lag of "+words.Count(sum.NotKnown, "partition")+
			" is not known: "+sum.Problem)
	}
	if sum.NotKnown > 0 && sum.NotKnown == len(g.Partitions) {
		t.Value, t.Unit = notKnown, ""
	}
	s.Glance = append(s.Glance, t)
	if sum.Beyond > 0 {
		s.Alerts = append(
			s.Alerts,
			alert{
				"bad", words.Count(sum.Beyond, "partition") + " with a committed offset beyond its end",
				"A topic was made anew, or its log was cut. OnGap decides whether the group goes on.",
				"partitions", "See which",
			},
		)
	}
	if len(g.Members) == 0 && g.MembersProblem == "" {
		s.Alerts = append(
			s.Alerts,
			alert{
				"bad", "The group has no members",
				"No member consumes. Start a worker, or read its log.", "partitions",
				"See the group",
			},
		)
	}
}

// calmDeadLetters is the time without new dead letters after which old ones need no attention. The
// topic does not show which of them were replayed, and a permanent warning is ignored.
const calmDeadLetters = time.Hour

// notKnown is the value of a tile without a figure.
const notKnown = "not known"

func (s *startView) glanceDeadLetters(g *groupState, watch *deadLetterWatch, now time.Time) {
	sum := g.deadLetters()
	letters := sum.Records
	t := tile{
		ID: "dead-letters", Name: "Dead letters", Value: words.Number(letters), Unit: "records",
		Note: "in " + words.Count(len(g.DeadLetters), "topic"), Link: "dead-letters", Level: "ok",
	}
	quiet := time.Duration(0)
	if n := len(sum.NotKnown); n > 0 {
		t.Level, t.Note = "", words.Count(n, "topic")+" not wholly known"
		if letters == 0 {
			t.Value, t.Unit = notKnown, ""
		}
		s.unknown("Kafka", "the dead letters of "+words.Count(n, "topic")+" are not wholly known ("+
			sum.NotKnown[0]+"): "+sum.Problem)
	} else { // the ends of some partitions are no sum to compare with
		quiet = watch.quiet(sum.Ends, now)
	}
	if letters > 0 {
		t.Level = "warn"
		title := words.Number(letters) + " records in dead-letter topics"
		if letters == 1 {
			title = "One record in a dead-letter topic"
		}
		if quiet >= calmDeadLetters {
			t.Level, t.Note = "", "none new for "+span(quiet)
			title += ", none new for " + span(quiet)
		}
		s.Alerts = append(
			s.Alerts,
			alert{
				cmp.Or(t.Level, "info"), title,
				"Replayed dead letters stay there until a purge: a plan shows the open ones.",
				"dead-letters", "Look at them",
			},
		)
	}
	s.Glance = append(s.Glance, t)
}

func (s *startView) glanceClaims(p part[[]storeClaims]) {
	s.unknown("Store", p.Problem)
	if !p.OK() {
		return
	}
	n, cannot, more := 0, 0, false
	for _, l := range p.Value {
		n += len(l.Records)
		more = more || l.More
		if l.Cannot {
			cannot++
		}
	}
	if cannot == len(p.Value) {
		return
	}
	t := tile{
		ID: "stuck", Name: "Stuck claims", Value: figure(int64(n), more), Link: "claims", Level: "ok",
		Note: "none: every lease is alive",
	}
	if n > 0 {
		t.Level, t.Note = "warn", "their lease is over"
		s.Alerts = append(
			s.Alerts,
			alert{
				"warn", title(int64(n), "claim", more) + " without a living holder",
				"The next delivery of each event takes over the claim. Without a delivery, the event must be sent again.",
				"claims", "See which",
			},
		)
	}
	s.Glance = append(s.Glance, t)
}

func (s *startView) glanceDeferred(p part[deferredState]) {
	s.unknown("Deferred events", p.Problem)
	if !p.OK() || len(p.Value.Queues) == 0 && len(p.Value.Cannot) > 0 && !p.Value.More {
		return
	}
	sums, more := p.Value.sums(), p.Value.More
	queues := words.Count(sums.Queues, "queue")
	t := tile{
		ID: "deferred", Name: "Deferred events", Value: figure(int64(sums.Events), more),
		Note: "in " + queues, Link: "deferred",
	}
	if more {
		t.Note += " or more"
		s.unknown("Deferred events", "blocked keys were looked for in "+queues+" only")
	}
	if sums.Blocked > 0 {
		t.Level = "warn"
		s.Alerts = append(
			s.Alerts,
			alert{
				"warn", title(int64(sums.Blocked), "key", more) + " blocked",
				"The first event of each was given up, and those behind it wait for a person.",
				"deferred", "See which",
			},
		)
	}
	s.Glance = append(s.Glance, t)
}

func (s *startView) glanceOutbox(p part[outboxState]) {
	s.unknown("Outbox", p.Problem)
	if !p.OK() {
		return
	}
	o := &p.Value
	t := tile{
		ID: "outbox", Name: "Outbox", Value: outboxRows(o.Waiting), Unit: "waiting", Link: "outbox",
		Level: "ok", Note: "nothing waits",
	}
	if o.Waiting > 0 {
		t.Note = "the oldest for " + span(o.Oldest)
	}
	if o.Backlog.Parked > 0 {
		t.Level = "warn"
		s.Alerts = append(
			s.Alerts,
			alert{
				"warn",
				title(o.Backlog.Parked, "outbox row", o.Backlog.Parked >= maxCounted) + " parked",
				"They will never be published as they are; " + outboxRows(o.Blocked) +
					" wait behind them.",
				"outbox",
				"See which",
			},
		)
	}
	s.Glance = append(s.Glance, t)
}
