package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// good is the result of a run without faults.
func good() *summary {
	return &summary{
		found: found{
			payments: 60, charges: 60, charged: 60, matched: 60, ordersPaid: 60, effects: 60, notified: 60, sent: 62,
			paymentRecords: 63, paymentIDs: 60, orderRecords: 61, orderIDs: 60,
		},
		asked: 60, answered: 60, requests: 90, impatient: 20, replays: 25,
		orders: map[string]int{"duplicates": 66}, notifier: map[string]int{"duplicates": 62},
		processes: 6, kills: 6, lanes: []int{3, 3}, again: 124, seed: 7,
	}
}

func TestGood(t *testing.T) {
	s := good()
	require.Empty(t, s.problems())
	require.Equal(t, 6, s.window())
	var out bytes.Buffer
	s.print(&out)
	require.Contains(t, out.String(), "OK in")
	require.Contains(t, out.String(), "at most 6 (2 notifiers killed, one in flight in each of their 3 + 3 partitions)")
	require.NotContains(t, out.String(), "FAILED")
}

// Each problem is detected alone, and named.
func TestEachProblemIsSeen(t *testing.T) {
	for name, c := range map[string]struct {
		breakIt func(*summary)
		says    string
	}{
		"not in time":              {func(s *summary) { s.hung = errNotQuiet }, "the queues are not empty"},
		"no answer":                {func(s *summary) { s.answered-- }, "59 of 60 payments answered"},
		"another answer":           {func(s *summary) { s.wrong = []string{"two payments"} }, "clients saw: two payments"},
		"charged twice":            {func(s *summary) { s.charges++ }, "61 charges, for 60 payments"},
		"charge for nothing":       {func(s *summary) { s.charges, s.charged = 61, 61 }, "61 charges, for 61 payments"},
		"order not paid":           {func(s *summary) { s.ordersPaid, s.effects, s.notified, s.orderIDs = 59, 59, 59, 59 }, "59 orders paid"},
		"two effects":              {func(s *summary) { s.effects++ }, "61 effects on 60 orders"},
		"not told":                 {func(s *summary) { s.notified, s.sent = 59, 59 }, "59 customers notified of 60 orders"},
		"lost":                     {func(s *summary) { s.lost = 1 }, "1 lost"},
		"another's charge":         {func(s *summary) { s.matched-- }, "59 of 60 payments have their charge"},
		"told without reason":      {func(s *summary) { s.strangers = 2 }, "2 notifications that no payment explains"},
		"told too often":           {func(s *summary) { s.sent = 67 }, "7 repeats, more than the 6 that the kills explain"},
		"repeat without a kill":    {func(s *summary) { s.lanes = nil }, "2 repeats, more than the 0 that the kills explain"},
		"repeat under another key": {func(s *summary) { s.mixups = 1 }, "1 repeats under another"},
		"event with two IDs":       {func(s *summary) { s.paymentIDs++ }, "61 different payment.completed for 60 payments"},
		"event missing":            {func(s *summary) { s.orderIDs-- }, "59 different order.paid for 60 orders"},
		"event ID by chance":       {func(s *summary) { s.foreignIDs = 3 }, "3 events whose IDs do not derive from their cause"},
		"event has not left":       {func(s *summary) { s.waiting = 1 }, "1 events have not left"},
		"dead letter":              {func(s *summary) { s.deadLetters = 1 }, "1 dead letters"},
		"nothing was killed":       {func(s *summary) { s.kills = 5 }, "5 of 6 processes were killed"},
		"the rewind was none":      {func(s *summary) { s.again = 0 }, "0 of 124 records were met again"},
		"the rewind did something": {func(s *summary) { s.changed = true }, "the rewind has changed something"},
	} {
		t.Run(name, func(t *testing.T) {
			s := good()
			c.breakIt(s)
			require.Contains(t, strings.Join(s.problems(), "; "), c.says)
			var out bytes.Buffer
			s.print(&out)
			require.Contains(t, out.String(), "FAILED after")
			require.Contains(t, out.String(), "seed 7")
			require.NotContains(t, out.String(), "OK in")
		})
	}
	s := good()
	s.payments = 61
	require.Contains(t, s.problems()[0], "61 payments in the table for 60 that were asked for")
}
