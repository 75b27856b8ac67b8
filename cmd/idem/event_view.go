package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/letters"
)

// eventReport is what event get shows.
type eventReport struct {
	Events  []eventView `json:"events"`
	Letters *lettersAt  `json:"letters,omitempty"`
}

// eventView is a record as people and scripts see it. Times are the server's.
type eventView struct {
	Ledger        string      `json:"ledger"`
	Scope         string      `json:"scope"`
	Type          string      `json:"type"`
	Tenant        string      `json:"tenant,omitempty"`
	ID            string      `json:"id"`
	Transactional bool        `json:"transactional"`
	State         string      `json:"state"`
	Settled       bool        `json:"settled"`
	Discarded     bool        `json:"discarded,omitempty"`
	Doubtful      bool        `json:"doubtful,omitempty"`
	Stuck         bool        `json:"stuck,omitempty"`
	Reason        string      `json:"reason,omitempty"`
	Failures      uint32      `json:"failures"`
	Takeovers     uint32      `json:"takeovers"`
	Fence         uint64      `json:"fence"`
	Generation    uint32      `json:"generation"`
	Retry         uint32      `json:"retry"`
	Lease         string      `json:"lease,omitempty"`
	Origin        *originView `json:"origin,omitempty"`
	Created       *time.Time  `json:"created,omitempty"`
	Changed       *time.Time  `json:"changed,omitempty"`
	Expires       *time.Time  `json:"expires,omitempty"`
	Parked        *parkedView `json:"parked,omitempty"`
	Next          string      `json:"next,omitempty"`
}

type originView struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Offset    int64      `json:"offset"`
	Time      *time.Time `json:"time,omitempty"`
}

type parkedView struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Queue     string `json:"queue"`
	Head      bool   `json:"head"`
	HeadID    string `json:"head_id"`
	Blocked   bool   `json:"blocked"`
	Wait      string `json:"wait,omitempty"`
	Others    int    `json:"others"` // in the queue beside it; -1: not known
}

func viewOf(e *eventAt, r dedup.Record) eventView {
	v := eventView{
		Ledger: e.ledger.name, Scope: r.Key.Scope, Type: r.Key.Type, Tenant: r.Key.Tenant, ID: r.Key.ID, Transactional: r.Tx,
		State: r.State.String(), Settled: r.Settled(), Discarded: r.Discarded(), Doubtful: r.Doubtful, Stuck: stuck(r),
		Reason: r.Reason, Failures: r.Failures, Takeovers: r.Takeovers, Fence: r.Fence,
		Generation: r.Position.Generation, Retry: r.Position.Retry,
		Origin: viewOfOrigin(r.First), Created: moment(r.Created), Changed: moment(r.Changed), Expires: moment(r.Expires),
		Next: e.next(r),
	}
	if r.State == dedup.Claimed {
		v.Lease = short(r.Lease)
	}
	if p := e.parked; p != nil {
		v.Parked = &parkedView{
			Topic: p.lot.Topic, Partition: p.lot.Partition, Queue: p.event.Queue, Head: p.isHead(), HeadID: p.head.Key.ID,
			Blocked: p.head.Blocked, Others: p.behind,
		}
		if p.head.Wait > 0 {
			v.Parked.Wait = short(p.head.Wait)
		}
	}
	return v
}

func viewOfOrigin(o dedup.Origin) *originView {
	if o == (dedup.Origin{}) {
		return nil
	}
	return &originView{o.Topic, o.Partition, o.Offset, moment(o.Time)}
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// short is a duration as people say it.
func short(d time.Duration) string {
	switch abs := d.Abs(); {
	case abs < time.Second:
		return d.Round(time.Millisecond).String()
	case abs < 48*time.Hour:
		return d.Round(time.Second).String()
	}
	return strconv.Itoa(int(d.Hours()/24)) + " days"
}

func stuck(r dedup.Record) bool { return r.State == dedup.Claimed && r.Lease <= 0 }

// next says what becomes of the event.
func (e *eventAt) next(r dedup.Record) string {
	if isRequest(r.Key) {
		return nextOfRequest(r)
	}
	switch r.State {
	case dedup.Finished:
		return "nothing: further deliveries are duplicates"
	case dedup.GivenUp:
		if r.Discarded() {
			return "nothing: a person gave it up for good"
		}
		if e.parked != nil {
			return e.parked.next()
		}
		return "a person: idem dlq replay lets it run again, idem event skip gives it up for good"
	case dedup.Waiting:
		if e.parked != nil {
			return e.parked.next()
		}
		return fmt.Sprintf("it runs when its copy of generation %d, attempt %d comes from the group's retry topic", r.Position.Generation, r.Position.Retry)
	case dedup.Claimed:
		if !stuck(r) {
			return fmt.Sprintf("it is being handled: its holder's lease lasts for %s more", short(r.Lease))
		}
		return fmt.Sprintf("its holder has not spoken for %s beyond its lease: the next delivery takes it over, as uncertain", short(-r.Lease))
	case dedup.Released:
		if e.parked != nil {
			return e.parked.next()
		}
		next := "its next delivery runs"
		if r.Doubtful {
			next += ", as uncertain: an earlier run was cut short and may have had its effect"
		}
		return next
	default:
		if e.parked != nil { // its record was forgotten
			return e.parked.next()
		}
		return "not known to this release"
	}
}

func (p *parkedAt) next() string {
	switch {
	case p.head.Blocked && p.isHead():
		return "a person: those of its key wait behind it; idem dlq replay or idem event release lets it run again, idem event skip gives it up for good"
	case p.head.Blocked:
		return fmt.Sprintf("a person: it waits behind %q, which was given up: idem event release or skip that one", p.head.Key.ID)
	case p.isHead() && p.head.Wait > 0:
		return fmt.Sprintf("it runs again in %s", short(p.head.Wait))
	case p.isHead():
		return "it runs as soon as the owner of its partition comes to it"
	}
	return fmt.Sprintf("it runs after %q, the first of its key", p.head.Key.ID)
}

// rows has the fields of each event one below the other: there are too many for a line.
func (r *eventReport) rows() (rows [][]string) {
	for i := range r.Events {
		if i > 0 {
			rows = append(rows, nil)
		}
		rows = append(rows, r.Events[i].rows()...)
	}
	return append(rows, r.Letters.rows()...)
}

func (v *eventView) rows() (rows [][]string) {
	add := func(name, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
	}
	add("EVENT", "%s", v.ID)
	add("type", "%s", v.Type)
	if v.Tenant != "" {
		add("tenant", "%s", v.Tenant)
	}
	add("scope", "%s", v.Scope)
	add("ledger", "%s", v.Ledger)
	if v.Fence > 0 || v.Created != nil || v.Changed != nil { // what is parked without a record does not say it
		add("handler", "%s", map[bool]string{true: "transactional", false: "with claims"}[v.Transactional])
	}
	add("state", "%s", v.state())
	if v.Reason != "" {
		add("reason", "%s", v.Reason)
	}
	add("attempts", "%s", v.attempts())
	if o := v.Origin; o != nil {
		add("origin", "%s/%d offset %d%s", o.Topic, o.Partition, o.Offset, at(" of ", o.Time))
	}
	if v.Created != nil || v.Changed != nil {
		add("known", "%s%s%s", at("since ", v.Created), map[bool]string{true: ", "}[v.Created != nil && v.Changed != nil], at("changed ", v.Changed))
	}
	if v.Expires != nil {
		add("kept until", "%s", stampOf(v.Expires))
	}
	if p := v.Parked; p != nil {
		add("parked", "%s", p.text())
	}
	add("next", "%s", v.Next)
	return rows
}

func (v *eventView) state() string {
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

func (v *eventView) attempts() string {
	s := fmt.Sprintf("%d failed, %d taken over, %d claims", v.Failures, v.Takeovers, v.Fence)
	if v.Generation > 0 || v.Retry > 0 {
		s += fmt.Sprintf("; generation %d, attempt %d", v.Generation, v.Retry)
	}
	return s
}

func (p *parkedView) text() string {
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

// describe says in the question to the person what is about to be changed.
func (e *eventAt) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Event %s of type %q in scope %q of %s", e.key.ID, e.key.Type, e.key.Scope, e.ledger.name)
	for _, r := range e.records {
		v := viewOf(e, r)
		fmt.Fprintf(&b, "\n  state: %s\n  next:  %s", v.state(), v.Next)
	}
	if len(e.records) == 0 {
		b.WriteString("\n  not known")
	}
	if e.parked != nil && len(e.records) == 0 {
		fmt.Fprintf(&b, ", but parked: %s", e.parked.next())
	}
	return b.String()
}

func (e *eventAt) has(is func(dedup.Record) bool) bool { return slices.ContainsFunc(e.records, is) }

func (e *eventAt) warnRelease() string {
	switch {
	case e.has(func(r dedup.Record) bool { return r.State == dedup.Finished }):
		return " It was handled, so its effect will happen a second time."
	case e.has(func(r dedup.Record) bool { return r.Doubtful || stuck(r) }):
		return " An earlier run may have had its effect, and nothing will say so to the handler."
	case e.has(func(r dedup.Record) bool { return r.State == dedup.GivenUp && !r.Discarded() }):
		return " For a dead event idem dlq replay is the better way: it also publishes it."
	}
	return ""
}

func (e *eventAt) warnSkip() string {
	if e.has(func(r dedup.Record) bool { return r.State == dedup.Claimed && !stuck(r) }) {
		return " Whoever handles it now may still have its effect."
	}
	return ""
}

// howDelivered says how a released event comes again: that is not the ledger's business.
func (e *eventAt) howDelivered(group string) string {
	if p := e.parked; p != nil {
		if p.isHead() {
			return "it is parked and first of its key: it runs as soon as the owner of its partition comes to it"
		}
		return fmt.Sprintf("it is parked: it runs after %q, the first of its key", p.head.Key.ID)
	}
	if isRequest(e.key) {
		return "it runs when its client sends it again"
	}
	const next = "it runs when it is delivered again: by its producer"
	for _, r := range e.records {
		if o := r.First; o.Topic != "" && !o.Time.IsZero() {
			return fmt.Sprintf("%s, or after idem rewind -G %s --topic %s --to %s (it is partition %d, offset %d); what else is read again is "+
				"known and skipped", next, cmp.Or(group, "<group>"), o.Topic, o.Time.UTC().Format(time.RFC3339), o.Partition, o.Offset)
		}
	}
	return next + ", or after idem rewind"
}

// lettersAt are dead letters of an event.
type lettersAt struct {
	Topics  []string     `json:"topics"`
	Scanned int          `json:"scanned"`
	Cut     bool         `json:"cut,omitempty"` // there are more
	Letters []letterView `json:"letters"`
}

type letterView struct {
	Topic      string      `json:"topic"`
	Partition  int32       `json:"partition"`
	Offset     int64       `json:"offset"`
	Class      string      `json:"class"`
	Error      string      `json:"error"`
	Attempts   int         `json:"attempts"`
	Generation uint32      `json:"generation"`
	First      *time.Time  `json:"first_failure,omitempty"`
	Last       *time.Time  `json:"last_failure,omitempty"`
	Origin     *originView `json:"origin"`
}

// maxLettersShown bounds what is kept of the letters of one event.
const maxLettersShown = 1000

// lettersOf looks through the group's dead-letter topics: of the topic that was named, or all that there are.
func (a *app) lettersOf(ctx context.Context, f *eventFlags, asked dedup.Key) (*lettersAt, error) {
	all := &lettersAt{Letters: []letterView{}}
	if f.topic != "" {
		all.Topics = []string{idem.DeadLetterTopic(a.group)(f.topic)}
	} else {
		client, err := a.kafka()
		if err != nil {
			return nil, err
		}
		topics, err := client.Topics()
		if err != nil {
			return nil, fmt.Errorf("topics: %w", err)
		}
		for _, t := range topics {
			if strings.HasSuffix(t, idem.DeadLetterTopic(a.group)("")) {
				all.Topics = append(all.Topics, t)
			}
		}
		slices.Sort(all.Topics)
	}
	filter := letters.Filter{Scope: asked.Scope, ID: asked.ID}
	if asked.Type != "" {
		filter.Types = []string{asked.Type}
	}
	client, err := a.kafka()
	if err != nil {
		return nil, err
	}
	all.Scanned, err = letters.Scan(ctx, client, all.Topics, filter, func(l *letters.Found) (bool, error) {
		if asked.Tenant != "" && l.Letter.Key.Tenant != asked.Tenant {
			return true, nil
		}
		if len(all.Letters) == maxLettersShown {
			all.Cut = true
			return false, nil
		}
		all.Letters = append(all.Letters, viewOfLetter(l))
		return true, nil
	})
	return all, err
}

func viewOfLetter(l *letters.Found) letterView {
	x, m := l.Letter, l.Letter.Message
	return letterView{
		Topic: l.Topic, Partition: l.Partition, Offset: l.Offset, Class: string(x.Class), Error: x.Error, Attempts: x.Attempts,
		Generation: x.Generation, First: moment(x.FirstFailure), Last: moment(x.LastFailure),
		Origin: &originView{m.Topic, m.Partition, m.Offset, moment(m.Time)},
	}
}

func (l *lettersAt) rows() [][]string {
	if l == nil {
		return nil
	}
	rows := [][]string{nil, {"LETTERS", fmt.Sprintf("%d found among %d records of %s, all of which were read", len(l.Letters), l.Scanned,
		cmp.Or(strings.Join(l.Topics, ", "), "no dead-letter topic of the group"))}}
	if l.Cut {
		rows[1][1] = fmt.Sprintf("the first %d, found among %d records; there are more", len(l.Letters), l.Scanned)
	}
	for _, x := range l.Letters {
		rows = append(rows, []string{
			fmt.Sprintf("%s/%d/%d", x.Topic, x.Partition, x.Offset),
			fmt.Sprintf("%s after %d attempts%s: %s", x.Class, x.Attempts, at(", last ", x.Last), x.Error),
		})
	}
	return rows
}
