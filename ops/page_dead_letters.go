package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
)

// shownDeadLetters is the number of dead letters on a page.
const shownDeadLetters = 100

// deadLettersView is a list of dead letters with filters.
type deadLettersView struct {
	Topics part[[]string]
	Counts map[string]int64 // records of topics, where known
	// NotKnown are the dead-letter topics without numbers, and Problem is why, for the first one.
	NotKnown []string
	Problem  string
	Filter   deadLetterFilter
	Since    string // as it was typed
	Until    string
	After    string // where the page before ended, see afterText
	Invalid  string // error of the filter

	TimeForm string // how a time is written
	Page     part[deadLetterPage]
	Classes  []idem.Class
	Again    url.Values
	Any      bool   // a filter is set
	May      bool   // the person may make plans
	Older    string // link to those that come after the ones that are shown
}

var classes = []idem.Class{
	idem.ClassPermanent, idem.ClassFailed, idem.ClassRetryAfter, idem.ClassPanic,
	idem.ClassTimeout, idem.ClassUncertain, idem.ClassCrashLoop,
	idem.ClassAlreadyDead, idem.ClassConflict, idem.ClassTooOld, idem.ClassUndecodable,
	idem.ClassNotJSON, idem.ClassNoID, idem.ClassAmbiguous, idem.ClassNoType,
	idem.ClassNotACopy,
}

// timeForm describes the form of Since and Until.
const timeForm = "A time is such as 2026-01-31T12:00, in UTC, or how long ago, such as 90m or 2h."

func (h *Handler) showDeadLetters(v *visit) error {
	l := &deadLettersView{
		Topics: fromCell(
			v.context(), h.cells.topics, howKafka,
		), Classes: classes, Counts: map[string]int64{},
		Filter: deadLetterFilter{
			Topic: v.query("topic"), Type: v.query("type"), Class: v.query("class"),
			ID: v.query("id"),
		},
		Since: v.query("since"), Until: v.query("until"), After: v.query("after"),
		TimeForm: timeForm,
	}
	l.Any = l.Filter.Type+l.Filter.Class+l.Filter.ID+l.Since+l.Until+l.After != ""
	if l.Topics.OK() {
		h.listDeadLetters(v, l)
	}
	l.May = h.offers(v, planned(ActionPlan, "plan", "", l.Filter.Topic, nil))
	return h.show(v, 200, "dead-letters", "Dead letters", 0, l)
}

func (h *Handler) listDeadLetters(v *visit, l *deadLettersView) {
	if group := fromCell(v.context(), h.cells.group, ""); group.OK() {
		for _, t := range group.Value.DeadLetters {
			if t.Problem == "" {
				l.Counts[t.Topic] = t.Records
			}
		}
		sum := group.Value.deadLetters()
		l.NotKnown, l.Problem = sum.NotKnown, sum.Problem
	}
	if l.Filter.Topic == "" {
		l.Filter.Topic = fullest(l.Topics.Value, l.Counts)
	}
	var err1, err2, err3 error
	l.Filter.Since, err1 = parseTime(h.now(), l.Since)
	l.Filter.Until, err2 = parseTime(h.now(), l.Until)
	l.Filter.After, err3 = parseAfter(l.Filter.Topic, l.After)
	switch {
	case err1 != nil:
		l.Invalid = `"Failed since" is no time. ` + timeForm
	case err2 != nil:
		l.Invalid = `"Failed before" is no time. ` + timeForm
	case err3 != nil:
		l.Invalid = "The link to older dead letters is broken: begin with the newest."
	case l.Filter.Topic == "":
	case !slices.Contains(l.Topics.Value, l.Filter.Topic):
		l.Invalid = "That is no dead-letter topic of this group."
	default:
		l.Page = ask(v, &h.background, h.cfg.Timeout, func(ctx context.Context) (deadLetterPage, error) {
			return h.src.deadLetters.newest(ctx, l.Filter, shownDeadLetters)
		})
		l.Older = l.older()
	}
}

// older returns the filter for the dead letters that come after those that are shown.
func (l *deadLettersView) older() string {
	rows := l.Page.Value.Rows
	if !l.Page.Value.More || len(rows) == 0 {
		return ""
	}
	q := url.Values{"topic": {l.Filter.Topic}, "after": {afterText(&rows[len(rows)-1])}}
	for name, value := range map[string]string{
		"type": l.Filter.Type, "class": l.Filter.Class, "id": l.Filter.ID, "since": l.Since,
		"until": l.Until,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return "./dead-letters?" + q.Encode()
}

// afterText is the time and the place of a dead letter, for a link. Several may have failed at one
// time, but no two have one place.
func afterText(r *deadLetterRow) string {
	return fmt.Sprintf("%s/%d/%d", r.Failed.UTC().Format(time.RFC3339Nano), r.Partition, r.Offset)
}

// parseAfter reads a text of afterText. Without a text the result is nil.
func parseAfter(topic, text string) (*deadLetterRow, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // the first page
	}
	failed, at, _ := strings.Cut(text, "/")
	t, err := time.Parse(time.RFC3339Nano, failed)
	if err != nil {
		return nil, errTime
	}
	place, err := parsePlace(topic, at)
	if err != nil {
		return nil, err
	}
	return &deadLetterRow{deadLetterPlace: place, Failed: t}, nil
}

// fullest is the topic with the most records, or the first.
func fullest(topics []string, records map[string]int64) string {
	if len(topics) == 0 {
		return ""
	}
	return slices.MaxFunc(
		topics, func(a, b string) int { return int(min(max(records[a]-records[b], -1), 1)) },
	)
}

var errTime = errors.New("no time")

// parseTime reads a time, or a duration before now. Without a text the result is zero.
func parseTime(now time.Time, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02T15:04:05", time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	if d, err := time.ParseDuration(strings.ReplaceAll(text, " ", "")); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, errTime
}

// deadLetterView is one dead letter.
type deadLetterView struct {
	Place      deadLetterPlace
	DeadLetter part[deadLetterDetail]
	As         string
	Key        shownBytes
	Value      shownBytes
	Ours       []shownHeader // headers that Idem added
	Theirs     []shownHeader
	Hidden     string // why there is no payload
	May        bool   // the person may make a plan
	Cut        int    // headers that are not shown
	Formats    []format
}

// maxHeaders limits the shown headers of a dead letter.
const maxHeaders = 256

type shownHeader struct {
	Name string
	shownBytes
}

type format struct{ Name, Link string }

func (h *Handler) showDeadLetter(v *visit) error {
	if h.src.deadLetters == nil {
		return &pageError{404, "No dead letters", howKafka}
	}
	place, err := parsePlace(v.query("topic"), v.query("partition")+"/"+v.query("offset"))
	if err != nil {
		return err
	}
	if err := h.ownTopic(v, place.Topic); err != nil {
		return err
	}
	l := &deadLetterView{Place: place, As: v.query("as"), Hidden: h.hidden(v, place)}
	l.DeadLetter = ask(
		v, &h.background, h.cfg.Timeout,
		func(ctx context.Context) (deadLetterDetail, error) { return h.src.deadLetters.get(ctx, place) },
	)
	l.May = h.offers(v, planned(ActionPlan, "plan", "", place.Topic, []deadLetterPlace{place}))
	if l.DeadLetter.OK() {
		l.open()
		if l.Hidden == "" && v.r.Method != http.MethodHead {
			h.auditRead(v, &l.DeadLetter.Value.deadLetterRow)
		}
	}
	for _, name := range []string{"auto", "text", "json", "hex"} {
		l.Formats = append(
			l.Formats, format{name, deadLetterLink(place) + "&as=" + name + "#payload"},
		)
	}
	if !slices.ContainsFunc(l.Formats, func(f format) bool { return f.Name == l.As }) {
		l.As = "auto"
	}
	return h.show(v, 200, "dead-letter", "Dead letter "+place.String(), 0, l)
}

// hidden returns the reason why a payload is not shown, or an empty text.
func (h *Handler) hidden(v *visit, place deadLetterPlace) string {
	switch {
	case h.cfg.HidePayloads:
		return "ops.Config.HidePayloads is set."
	case !h.may(v, planned(ActionPayload, "dead-letter", "", place.Topic, []deadLetterPlace{place})):
		return "you may not see them (ops.Config.Authorize)."
	}
	return ""
}

func (l *deadLetterView) open() {
	d := &l.DeadLetter.Value
	if l.Hidden == "" {
		l.Key, l.Value = showBytes(d.Key, ""), showBytes(d.Value, l.As)
	}
	for _, x := range d.Headers {
		if len(l.Ours)+len(l.Theirs) >= maxHeaders {
			l.Cut++
			continue
		}
		s := shownHeader{
			clip(x.Key, shownHead), showBytes(x.Value[:min(len(x.Value), shownHead)], ""),
		}
		if len(x.Value) > shownHead {
			s.Cut, s.Size = true, len(x.Value)
		}
		if strings.HasPrefix(x.Key, deadletter.HeaderPrefix) &&
			!strings.HasPrefix(x.Key, deadletter.HeaderOriginal) {
			l.Ours = append(l.Ours, s)
		} else if l.Hidden == "" {
			l.Theirs = append(l.Theirs, s)
		}
	}
}

// ownTopic limits the page to the dead-letter topics of the group.
func (h *Handler) ownTopic(v *visit, topic string) error {
	topics := h.cells.topics.get(v.context())
	switch {
	case topics.Problem != "":
		return &pageError{503, "Kafka does not answer", topics.Problem}
	case !slices.Contains(topics.Value, topic):
		return &pageError{404, "No such topic", "That is no dead-letter topic of this group."}
	}
	return nil
}
