package ops

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/words"
)

// eventView answers "was event X handled, when, and why not?".
type eventView struct {
	Query       eventQuery
	Found       part[eventAnswer]
	DeadLetters part[eventDeadLetters]
	Answers     []answer
	Failures    []failure // of this process, where no store has the event
	Example     string
}

// answer describes one event.
type answer struct {
	Key     dedup.Key
	Store   string
	Level   string // ok, warn, bad or info
	Verdict string // in one line
	Next    string
	Advice  []advice
	Steps   []step
	Facts   []fact
}

// advice is a possible action of a person.
type advice struct{ Text, Link, Command string }

type fact struct{ Name, Value string }

// step is a step in the history of an event. A step without a time is ordered by place.
type step struct {
	At     time.Time
	Level  string
	Title  string
	Text   string
	Link   string
	Future bool

	place time.Time // order among the others, for an unknown time
}

func (h *Handler) showEvent(v *visit) error {
	q := eventQuery{
		ID: v.identity("id"), Type: v.identity("type"), Tenant: v.identity("tenant"),
		Source: v.query("source"), Topic: v.query("topic"),
	}
	if q.ID == "" {
		return v.to("", nil)
	}
	e := &eventView{
		Query: q, Found: missing[eventAnswer](howStore),
		DeadLetters: missing[eventDeadLetters](howKafka),
	}
	if h.src.events != nil {
		together(
			func() {
				e.Found = ask(
					v, &h.background, h.cfg.Timeout,
					func(ctx context.Context) (eventAnswer, error) { return h.src.events.find(ctx, q) },
				)
			},
			func() {
				if h.src.deadLetters != nil {
					e.DeadLetters = ask(
						v, &h.background, h.cfg.Timeout,
						func(ctx context.Context) (eventDeadLetters, error) { return h.src.events.deadLettersOf(ctx, q) },
					)
				}
			},
		)
	}
	if m := h.src.monitor; m != nil {
		e.Failures = m.failures.byID(q.ID)
	}
	e.answer(h.now())
	return h.show(v, 200, "event", "Event "+q.ID, 0, e)
}

// answer makes an answer for each record, and assigns dead letters and failures to the records.
func (e *eventView) answer(now time.Time) {
	records := slices.Clone(e.Found.Value.Records)
	slices.SortStableFunc(records, func(a, b eventRecord) int { return a.Key.Compare(b.Key) })
	for i := range records {
		r := &records[i]
		a := answer{Key: r.Key, Store: r.Store, Next: capital(r.Next)}
		a.Level, a.Verdict = verdictOf(now, r)
		a.Steps = stepsOf(now, r)
		for j := range e.DeadLetters.Value.DeadLetters {
			if l := &e.DeadLetters.Value.DeadLetters[j]; l.mayBeOf(r.Key) {
				a.Steps = append(a.Steps, stepOfDeadLetter(l))
			}
		}
		for _, f := range e.Failures {
			if f.Key == r.Key && !f.Dead {
				a.Steps = append(a.Steps, stepOfFailure(f))
			}
		}
		a.order()
		a.Advice = e.adviceFor(r)
		a.Facts = factsOf(r)
		e.Answers = append(e.Answers, a)
	}
}

// order puts the steps into the order of their times, those that are still to come last.
func (a *answer) order() {
	slices.SortStableFunc(a.Steps, func(x, y step) int {
		if x.Future != y.Future {
			return map[bool]int{true: 1, false: -1}[x.Future]
		}
		return x.order().Compare(y.order())
	})
}

func (s *step) order() time.Time {
	if s.At.IsZero() {
		return s.place
	}
	return s.At
}

func verdictOf(now time.Time, r *eventRecord) (level, text string) {
	switch {
	case r.NoRow:
		return "warn", "Not yet. It is deferred, and waits for its turn."
	case r.State == dedup.Finished && !r.Changed.IsZero():
		return "ok", "Yes, it was handled " + ago(now, r.Changed) + "."
	case r.State == dedup.Finished:
		return "ok", "Yes, it was handled."
	case r.Discarded():
		return "info", "No, and it will not be: a person gave it up for good."
	case r.State == dedup.GivenUp:
		return "bad", "No. It was given up" + map[bool]string{true: " after " + failureCount(r.Failures)}[r.Failures > 0] + "."
	case r.State == dedup.Waiting:
		return "warn", "Not yet. A later attempt is on its way."
	case r.State == dedup.Claimed && r.Lease > 0:
		return "info", "It is being handled now."
	case r.State == dedup.Claimed:
		return "warn", "Not known. The worker that handled the event went silent " + span(
			r.Lease,
		) + " ago, after or before the effect."
	case r.State == dedup.Released && r.Doubtful:
		return "warn", "Perhaps. An earlier run was cut short and may have had its effect; the next delivery runs as uncertain."
	case r.State == dedup.Released:
		return "warn", "Not yet. It was given back, and its next delivery runs."
	}
	return "warn", "It is in a state that this release does not know: " + r.State.String() + "."
}

func failureCount(n uint32) string {
	if n == 1 {
		return "one failure"
	}
	return fmt.Sprintf("%d failures", n)
}

func stepsOf(now time.Time, r *eventRecord) (steps []step) {
	add := func(s step) {
		s.place = r.Changed // just before the last that is known of it
		steps = append(steps, s)
	}
	if o := r.First; o.Topic != "" {
		add(
			step{
				At: o.Time, Level: "info", Title: "Written to Kafka",
				Text: fmt.Sprintf("%s, partition %d, offset %d", o.Topic, o.Partition, o.Offset),
			},
		)
	}
	if !r.Created.IsZero() {
		add(step{At: r.Created, Level: "info", Title: "First seen by the store", Text: r.Store})
	}
	if r.Failures > 0 {
		add(
			step{
				Level: "warn", Title: "The handler failed",
				Text: words.Count(int(r.Failures), "attempt") + " in all",
			},
		)
	}
	if r.Takeovers > 0 {
		add(
			step{
				Level: "warn",
				Title: "Taken over",
				Text: words.Count(
					int(r.Takeovers), "time",
				) + ": its holder went silent, and another worker went on",
			},
		)
	}
	if s, ok := stepOfState(r); ok {
		add(s)
	}
	if p := r.Deferred; p != nil {
		add(
			step{
				Level: map[bool]string{true: "bad", false: "warn"}[p.Blocked],
				Title: "Deferred in the order of its Kafka key", Text: p.describe(),
			},
		)
	}
	if !r.Expires.IsZero() {
		add(
			step{
				At: r.Expires, Level: "info", Title: "May be forgotten",
				Text: "a delivery after that is new", Future: r.Expires.After(now),
			},
		)
	}
	return steps
}

func stepOfState(r *eventRecord) (step, bool) {
	how := map[bool]string{true: "in one transaction with its effects", false: "the claim was completed"}[r.Tx]
	switch {
	case r.NoRow:
		return step{}, false
	case r.State == dedup.Finished:
		return step{At: r.Changed, Level: "ok", Title: "Handled", Text: how}, true
	case r.Discarded():
		return step{
			At: r.Changed, Level: "info", Title: "Given up by a person",
			Text: strings.TrimPrefix(r.Reason, dedup.ReasonDiscarded),
		}, true
	case r.State == dedup.GivenUp:
		return step{At: r.Changed, Level: "bad", Title: "Given up", Text: r.Reason}, true
	case r.State == dedup.Waiting:
		return step{
			At: r.Changed, Level: "warn", Title: "Open for a later attempt",
			Text: fmt.Sprintf("generation %d, attempt %d", r.Position.Generation, r.Position.Retry),
		}, true
	case r.State == dedup.Claimed && r.Lease > 0:
		return step{
			At: r.Changed, Level: "info", Title: "Claimed",
			Text: "the lease lasts for " + span(r.Lease) + " more",
		}, true
	case r.State == dedup.Claimed:
		return step{
			At: r.Changed, Level: "warn", Title: "Claimed, and silent since",
			Text: "the lease ended " + span(r.Lease) + " ago",
		}, true
	case r.State == dedup.Released:
		return step{At: r.Changed, Level: "warn", Title: "Given back", Text: r.Reason}, true
	}
	return step{}, false
}

func (p *deferredEvent) describe() string {
	s := fmt.Sprintf("%s/%d, %s", p.Topic, p.Partition, queueName(p.Queue))
	if p.Head {
		s += ", first of its key"
		if p.Others > 0 {
			s += fmt.Sprintf(", %d behind it", p.Others)
		}
	} else {
		s += fmt.Sprintf(", behind %q", p.HeadID)
	}
	switch {
	case p.Blocked:
		s += "; blocked: a person must decide"
	case p.Wait != "":
		s += "; not before " + p.Wait + " from now"
	}
	return s
}

func stepOfDeadLetter(l *deadLetterRow) step {
	s := step{
		At: l.Failed, Level: "bad", Title: "Dead letter: " + string(l.Class), Text: l.Error,
		Link: deadLetterLink(l.deadLetterPlace),
	}
	if l.Attempts > 0 {
		s.Text = words.Count(l.Attempts, "attempt") + ": " + s.Text
	}
	return s
}

func stepOfFailure(f failure) step {
	s := step{
		At: f.At, Level: "warn", Title: fmt.Sprintf("Attempt %d failed in this process", f.Attempt),
		Text: f.Error,
	}
	switch {
	case f.Topic != "":
		s.Text += fmt.Sprintf(" (the next attempt comes from %s after %s)", f.Topic, span(f.Delay))
	case f.Delay > 0:
		s.Text += " (tried again after " + span(f.Delay) + ")"
	}
	return s
}

func (e *eventView) adviceFor(r *eventRecord) (all []advice) {
	cmd := func(verb string) string {
		c := "idem event " + verb + " " + quoted(r.Key.ID) + " --type " + quoted(r.Key.Type)
		if r.Key.Tenant != "" {
			c += " --tenant " + quoted(r.Key.Tenant)
		}
		return c + " --scope " + quoted(r.Key.Scope)
	}
	switch {
	case r.State == dedup.GivenUp && !r.Discarded():
		for i := range e.DeadLetters.Value.DeadLetters {
			if l := &e.DeadLetters.Value.DeadLetters[i]; l.mayBeOf(r.Key) {
				all = append(
					all,
					advice{
						Text: "Look at its dead letter, and plan a replay",
						Link: deadLetterLink(l.deadLetterPlace),
					},
				)
				break
			}
		}
		all = append(
			all,
			advice{Text: "Give it up for good, so that nothing waits for it", Command: cmd("skip")},
		)
	case r.State == dedup.Claimed && r.Lease <= 0, r.State == dedup.Released && r.Doubtful:
		all = append(
			all,
			advice{
				Text: "Find out whether the effect happened: ask the handler's own system for the idempotency key " + r.Key.UUID(),
			},
			advice{Text: "If it must not run again, give it up", Command: cmd("skip")},
		)
	case r.State == dedup.Released:
		all = append(
			all,
			advice{
				Text:    "The producer sends the event again, or the group is rewound to its offset: other events that are read again are known and skipped",
				Command: rewind(r.First),
			},
		)
	}
	return all
}

func rewind(o dedup.Origin) string {
	if o.Topic == "" || o.Time.IsZero() {
		return ""
	}
	return fmt.Sprintf(
		"idem rewind --topic %s --to %s", quoted(o.Topic), o.Time.UTC().Format(time.RFC3339),
	)
}

// quoted returns s as one word for a POSIX shell, because a person may copy the command.
func quoted(s string) string {
	if s != "" &&
		strings.Trim(
			s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:@%+=-",
		) == "" &&
		s[0] != '-' {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func factsOf(r *eventRecord) []fact {
	facts := []fact{{"Type", cmp.Or(r.Key.Type, "–")}, {"Scope", r.Key.Scope}}
	if r.Key.Tenant != "" {
		facts = append(facts, fact{"Tenant", r.Key.Tenant})
	}
	facts = append(facts, fact{"Store", r.Store})
	if !r.NoRow {
		facts = append(
			facts,
			fact{"Handler", map[bool]string{true: "transactional", false: "with claims"}[r.Tx]},
			fact{"State", r.State.String()},
			fact{
				"Claims",
				fmt.Sprintf("%d, %d failed, %d taken over", r.Fence, r.Failures, r.Takeovers),
			},
		)
		if r.Content != "" {
			facts = append(facts, fact{"Content", r.Content})
		}
	}
	if r.First.Topic != "" {
		facts = append(
			facts,
			fact{
				"Origin", fmt.Sprintf("%s/%d/%d", r.First.Topic, r.First.Partition, r.First.Offset),
			},
		)
	}
	if !r.Expires.IsZero() {
		facts = append(facts, fact{"Kept until", stamp(r.Expires)})
	}
	return append(facts, fact{"Idempotency key", idempotencyKey(r.Key)})
}

func idempotencyKey(k dedup.Key) string { return k.UUID() }
