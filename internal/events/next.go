package events

import (
	"fmt"

	"github.com/idem-go/idem/dedup"
)

// Next describes the next step of the event of a record, and the options of a person.
func (e *Event) Next(r dedup.Record) string {
	if IsRequest(r.Key) {
		return nextOfRequest(r)
	}
	if e.Deferred != nil && e.Deferred.blocks() && r.Settled() {
		return nextOfASettledHead(r)
	}
	switch r.State {
	case dedup.Finished:
		return "nothing: further deliveries are duplicates"
	case dedup.GivenUp:
		if r.Discarded() {
			return "nothing: a person gave it up for good"
		}
		if e.Deferred != nil {
			return e.Deferred.Next()
		}
		return "a person: idem dlq replay lets it run again, idem event skip gives it up for good"
	case dedup.Waiting:
		if e.Deferred != nil {
			return e.Deferred.Next()
		}
		return fmt.Sprintf(
			"it runs when its copy of generation %d, attempt %d comes from the group's retry topic",
			r.Position.Generation, r.Position.Retry,
		)
	case dedup.Claimed:
		if !Stuck(r) {
			return fmt.Sprintf(
				"it is being handled: its holder's lease lasts for %s more", Short(r.Lease),
			)
		}
		return fmt.Sprintf(
			"its holder has not spoken for %s beyond its lease: the next delivery takes it over, as uncertain",
			Short(-r.Lease),
		)
	case dedup.Released:
		if e.Deferred != nil {
			return e.Deferred.Next()
		}
		next := "its next delivery runs"
		if r.Doubtful {
			next += ", as uncertain: an earlier run was cut short and may have had its effect"
		}
		return next
	default:
		if e.Deferred != nil { // the record was forgotten
			return e.Deferred.Next()
		}
		return "not known to this release"
	}
}

// nextOfASettledHead is the next step of a settled event that blocks its queue: a verb was cut short
// before it took the event out, or the event was settled outside its queue.
func nextOfASettledHead(r dedup.Record) string {
	settled := "handled"
	if r.Discarded() {
		settled = "given up"
	}
	return "a person: it was " + settled +
		" and still blocks those of its key: idem event skip takes it out of its queue"
}

// Next describes when the event runs, or the needed action.
func (p *Deferred) Next() string {
	switch {
	case p.blocks():
		return "a person: those of its key wait behind it; idem dlq replay or idem event release lets it run again, idem event skip gives it up for good"
	case p.Head.Blocked:
		return fmt.Sprintf(
			"a person: it waits behind %q, which was given up: idem event release or skip that one",
			p.Head.Key.ID,
		)
	case p.IsHead() && p.Head.Wait > 0:
		return fmt.Sprintf("it runs again in %s", Short(p.Head.Wait))
	case p.IsHead():
		return "it runs as soon as the owner of its partition comes to it"
	}
	return fmt.Sprintf("it runs after %q, the first of its key", p.Head.Key.ID)
}
