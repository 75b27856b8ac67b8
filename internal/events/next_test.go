package events

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// A settled event that blocks the queue of its key is a task for a person. Behind the head, or
// before a turn, an event blocks nothing: the owner of its partition takes it out (rule 4).
func TestNextOfASettledEvent_Rule4(t *testing.T) {
	head, other := key("order", "head"), key("order", "other")
	place := func(first dedup.Key, blocked bool) *Deferred {
		return &Deferred{
			Event: dedup.Deferred{Key: head},
			Head:  dedup.Deferred{Key: first, Blocked: blocked, Wait: time.Hour},
		}
	}
	done := dedup.Record{Key: head, State: dedup.Finished}
	dead := dedup.Record{Key: head, State: dedup.GivenUp, Reason: "broken"}
	discarded := dedup.Record{Key: head, State: dedup.GivenUp, Reason: dedup.ReasonDiscarded + "why"}
	const (
		person  = "still blocks those of its key: idem event skip takes it out of its queue"
		nothing = "nothing: "
	)
	for name, test := range map[string]struct {
		record dedup.Record
		place  *Deferred
		want   string
	}{
		"done":                        {done, nil, nothing},
		"done, not blocked":           {done, place(head, false), nothing},
		"done, behind another":        {done, place(other, true), nothing},
		"done, blocked":               {done, place(head, true), "a person: it was handled and " + person},
		"discarded":                   {discarded, nil, nothing},
		"discarded, not blocked":      {discarded, place(head, false), nothing},
		"discarded, behind another":   {discarded, place(other, true), nothing},
		"discarded, blocked":          {discarded, place(head, true), "a person: it was given up and " + person},
		"dead, blocked":               {dead, place(head, true), "idem event release lets it run again"},
		"dead, without a queue":       {dead, nil, "idem dlq replay lets it run again"},
		"dead, behind a blocked head": {dead, place(other, true), `it waits behind "other"`},
	} {
		e := &Event{Key: head, Records: []dedup.Record{test.record}, Deferred: test.place}
		require.Contains(t, e.Next(test.record), test.want, name)
	}
}
