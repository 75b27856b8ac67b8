package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/events"
)

// eventReport is the output of event get.
type eventReport struct {
	Events      []events.View         `json:"events"`
	DeadLetters *events.DeadLettersAt `json:"deadLetters,omitempty"`
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// short formats a duration for people.
func short(d time.Duration) string { return events.Short(d) }

// rows has the fields of each event one below the other: there are too many for a line.
func (r *eventReport) rows() (rows [][]string) {
	for i := range r.Events {
		if i > 0 {
			rows = append(rows, nil)
		}
		rows = append(rows, viewRows(&r.Events[i])...)
	}
	return append(rows, deadLetterRows(r.DeadLetters)...)
}

func viewRows(v *events.View) (rows [][]string) {
	add := func(name, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
	}
	add("EVENT", "%s", v.ID)
	add("type", "%s", v.Type)
	if v.Tenant != "" {
		add("tenant", "%s", v.Tenant)
	}
	add("scope", "%s", v.Scope)
	add("store", "%s", v.Store)
	if v.Fence > 0 || v.Created != nil ||
		v.Changed != nil { // unknown for a deferred event without a record
		add(
			"handler", "%s",
			map[bool]string{true: "transactional", false: "with claims"}[v.Transactional],
		)
	}
	add("state", "%s", stateText(v))
	if v.Reason != "" {
		add("reason", "%s", v.Reason)
	}
	add("attempts", "%s", attemptsText(v))
	if o := v.Origin; o != nil {
		add("origin", "%s/%d offset %d%s", o.Topic, o.Partition, o.Offset, at(" of ", o.Time))
	}
	if v.Created != nil || v.Changed != nil {
		add(
			"known", "%s%s%s", at("since ", v.Created),
			map[bool]string{true: ", "}[v.Created != nil && v.Changed != nil],
			at("changed ", v.Changed),
		)
	}
	if text := v.ContentText(); text != "" {
		add("content", "%s", text)
	}
	if v.Expires != nil {
		add("kept until", "%s", stampOf(v.Expires))
	}
	if p := v.Deferred; p != nil {
		add("deferred", "%s", deferredText(p))
	}
	add("next", "%s", v.Next)
	return rows
}

func stateText(v *events.View) string {
	s := v.State
	if v.Discarded {
		s += ", given up by a person"
	}
	if v.Stuck {
		s += ", stuck"
	}
	if v.Doubtful {
		s += ", in doubt"
	}
	return s
}

func attemptsText(v *events.View) string {
	s := fmt.Sprintf("%d failed, %d taken over, %d claims", v.Failures, v.Takeovers, v.Fence)
	if v.Generation > 0 || v.Retry > 0 {
		s += fmt.Sprintf("; generation %d, attempt %d", v.Generation, v.Retry)
	}
	return s
}

func deferredText(p *events.DeferredView) string {
	s := fmt.Sprintf("%s/%d, ", p.Topic, p.Partition)
	if key, ok := strings.CutPrefix(p.Queue, "k"); ok { // see Processor.OrderKey
		s += fmt.Sprintf("key %q, ", key)
	} else {
		s += "without Kafka key, "
	}
	others := strconv.Itoa(p.Others)
	if p.Others < 0 {
		others = "an unknown number"
	}
	if p.Head {
		s += "first of its key, " + others + " behind it"
	} else {
		s += fmt.Sprintf("behind %q, %s others of its key", p.HeadID, others)
	}
	if p.Blocked {
		s += ", blocked"
	} else if p.Wait != "" {
		s += ", not before " + p.Wait + " from now"
	}
	return s
}

func at(words string, t *time.Time) string {
	if t == nil {
		return ""
	}
	return words + stampOf(t)
}

func stampOf(t *time.Time) string { return t.Format("2006-01-02 15:04:05Z") }

// describe describes the change in the question to the person.
func describe(e *events.Event) string {
	var b strings.Builder
	fmt.Fprintf(
		&b, "Event %s of type %q in scope %q of %s", e.Key.ID, e.Key.Type, e.Key.Scope,
		e.Store.Name,
	)
	for _, r := range e.Records {
		v := e.View(r)
		fmt.Fprintf(&b, "\n  state: %s\n  next:  %s", stateText(&v), v.Next)
	}
	if len(e.Records) == 0 {
		b.WriteString("\n  not known")
	}
	if e.Deferred != nil && len(e.Records) == 0 {
		fmt.Fprintf(&b, ", but deferred: %s", e.Deferred.Next())
	}
	return b.String()
}

func has(e *events.Event, is func(dedup.Record) bool) bool {
	return slices.ContainsFunc(e.Records, is)
}

func warnRelease(e *events.Event) string {
	switch {
	case has(e, func(r dedup.Record) bool { return r.State == dedup.Finished }):
		return " It was handled, so its effect will happen a second time."
	case has(e, func(r dedup.Record) bool { return r.Doubtful || events.Stuck(r) }):
		return " An earlier run may have had its effect, and nothing will say so to the handler."
	case has(e, func(r dedup.Record) bool { return r.State == dedup.GivenUp && !r.Discarded() }):
		return " For a dead event idem dlq replay is the better way: it also publishes it."
	}
	return ""
}

func warnSkip(e *events.Event) string {
	if has(e, func(r dedup.Record) bool { return r.State == dedup.Claimed && !events.Stuck(r) }) {
		return " Whoever handles it now may still have its effect."
	}
	return ""
}

// howDelivered describes how a released event comes again.
func howDelivered(e *events.Event, group string) string {
	if p := e.Deferred; p != nil {
		if p.IsHead() {
			return "it is deferred and first of its key: it runs as soon as the owner of its partition comes to it"
		}
		return fmt.Sprintf("it is deferred: it runs after %q, the first of its key", p.Head.Key.ID)
	}
	if events.IsRequest(e.Key) {
		return "it runs when its client sends it again"
	}
	const next = "it runs when it is delivered again: by its producer"
	for _, r := range e.Records {
		if o := r.First; o.Topic != "" && !o.Time.IsZero() {
			return fmt.Sprintf(
				"%s, or after idem rewind -G %s --topic %s --to %s (it is partition %d, offset %d); what else is read again is "+
					"known and skipped",
				next,
				cmp.Or(group, "<group>"),
				o.Topic,
				o.Time.UTC().Format(time.RFC3339),
				o.Partition,
				o.Offset,
			)
		}
	}
	return next + ", or after idem rewind"
}

func deadLetterRows(l *events.DeadLettersAt) [][]string {
	if l == nil {
		return nil
	}
	rows := [][]string{
		nil,
		{"DEAD LETTERS", fmt.Sprintf(
			"%d found among %d records of %s, all of which were read",
			len(l.DeadLetters),
			l.Scanned,
			cmp.Or(
				strings.Join(l.Topics, ", "),
				"no dead-letter topic of the group that this user may describe",
			),
		)},
	}
	if l.Cut {
		rows[1][1] = fmt.Sprintf(
			"the first %d, found among %d records; there are more", len(l.DeadLetters), l.Scanned,
		)
	}
	for _, x := range l.DeadLetters {
		rows = append(rows, []string{
			fmt.Sprintf("%s/%d/%d", x.Topic, x.Partition, x.Offset),
			fmt.Sprintf(
				"%s after %d attempts%s: %s", x.Class, x.Attempts, at(", last ", x.Last), x.Error,
			),
		})
	}
	return rows
}
