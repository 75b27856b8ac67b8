package events

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The steps of an event stand in the order in which they happened, each of them once, however many tell of it.
func TestTimeline(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	at := func(minutes int) *time.Time { u := begin.Add(time.Duration(minutes) * time.Minute); return &u }
	origin := &Origin{Topic: "orders", Partition: 2, Offset: 7, Time: at(0)}
	view := View{
		Ledger: "postgres", State: "done", Origin: origin, Created: at(1), Changed: at(60), Expires: at(9000),
	}
	letter := Letter{
		Topic: "orders.g.dlq", Offset: 3, Class: "failed", Error: "card declined", Attempts: 3, First: at(2), Last: at(5), Origin: origin, Written: *at(5),
	}
	again := letter // the acknowledgement was lost
	again.Offset, again.Written = 4, *at(70)
	steps := Timeline([]View{view}, &LettersAt{Letters: []Letter{letter, again}})
	require.Equal(t, []Step{
		{Time: *at(0), Kind: Written, Text: "written by its producer", Place: "orders/2/7"},
		{Time: *at(1), Kind: Known, Text: "first known to postgres", Ledger: "postgres"},
		{Time: *at(2), Kind: Failed, Text: "failed for the first time"},
		{Time: *at(5), Kind: Failed, Text: "failed for the last time, after 3 attempts: failed: card declined"},
		{Time: *at(5), Kind: Lettered, Text: "dead letter: failed: card declined", Place: "orders.g.dlq/0/3"},
		{Time: *at(60), Kind: Changed, Text: "done", Ledger: "postgres", State: "done"},
		{Time: *at(70), Kind: Lettered, Text: "dead letter: failed: card declined", Place: "orders.g.dlq/0/4"},
		{Time: *at(9000), Kind: Expires, Text: "may be forgotten by postgres", Ledger: "postgres"},
	}, steps)

	require.Empty(t, Timeline(nil, nil))
	bare := View{Ledger: "redis", State: "claimed", Origin: &Origin{}}
	require.Empty(t, Timeline([]View{bare}, nil), "what has no time is not in it")
	letter.Attempts, letter.Last = 1, letter.First
	require.Len(t, Timeline(nil, &LettersAt{Letters: []Letter{letter}}), 3, "a single failure is one step")
}
