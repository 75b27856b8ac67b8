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
		add("handler", "%s", handlerText(v))
	}
	add("state", "%s", stateText(v))
	if v.Reason != "" {
		add("reason", "%s", oneLine(v.Reason))
	}
	add("claims", "%s", claimsText(v))
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

// handlerText is the kind of handlers that a record is for.
func handlerText(v *events.View) string {
	if v.Transactional {
		return "transactional"
	}
	return "with claims"
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

func claimsText(v *events.View) string {
	s := fmt.Sprintf("%d, %d failed, %d taken over", v.Fence, v.Failures, v.Takeovers)
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

// describe describes the change in the question to the person.
func describe(e *events.Event) string {
	var b strings.Builder
	fmt.Fprintf(
		&b, "Event %q of type %q in scope %q of %s", e.Key.ID, e.Key.Type, e.Key.Scope,
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
	case has(e, isDone):
		return " The event was handled, so its effect will happen a second time."
	case has(e, func(r dedup.Record) bool { return r.Doubtful || events.Stuck(r) }):
		return " An earlier run may have had its effect, and the handler will not be informed."
	case has(e, func(r dedup.Record) bool { return r.State == dedup.GivenUp && !r.Discarded() }):
		return " For a dead event prefer idem dlq replay, which also publishes a copy."
	}
	return ""
}

func isLive(r dedup.Record) bool { return r.State == dedup.Claimed && !events.Stuck(r) }

func isDone(r dedup.Record) bool { return r.State == dedup.Finished }

// promiseOfSkip is the effect of event skip, in the question to the person.
func promiseOfSkip(e *events.Event) string {
	const promise = "The event will be given up for good: no delivery will run."
	switch {
	case has(e, isDone) && e.Deferred != nil:
		return "The event was handled: it is only taken out of its queue."
	case has(e, isLive):
		return promise + " A handler that runs now may still have its effect."
	}
	return promise
}

// howDelivered describes how a released event comes again.
func howDelivered(e *events.Event, group string) string {
	if p := e.Deferred; p != nil {
		switch {
		case !p.IsHead():
			return "deferred: " + p.Next()
		case p.Head.Wait > 0 && !p.Head.Blocked: // a dry run has not unblocked it
			return "deferred, first of its key: " + p.Next()
		}
		return "deferred, first of its key: " +
			"the owner of its partition runs the event as soon as possible"
	}
	if events.IsRequest(e.Key) {
		return "runs when its client sends the request again"
	}
	const next = "runs at its next delivery: by its producer"
	for _, r := range e.Records {
		if o := r.First; o.Topic != "" && !o.Time.IsZero() {
			return fmt.Sprintf(
				"%s, or after idem rewind -G %s --topic %s --to %s (partition %d, offset %d); "+
					"other events that are read again are known and skipped",
				next, cmp.Or(group, "<group>"), o.Topic, o.Time.UTC().Format(time.RFC3339),
				o.Partition, o.Offset,
			)
		}
	}
	return next + ", or after idem rewind"
}
