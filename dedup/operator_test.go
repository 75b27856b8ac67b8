package dedup_test

import (
	"testing"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

func TestStateString(t *testing.T) {
	for s, want := range map[dedup.State]string{
		0: "none", dedup.Claimed: "claimed", dedup.Released: "released", dedup.Finished: "done", dedup.GivenUp: "dead",
		dedup.Waiting: "waiting", dedup.Waiting + 1: "state(6)", 255: "state(255)",
	} {
		require.Equal(t, want, s.String())
	}
}

// Only an event that was handled, or that a person gave up, needs no more work: its dead letter may
// be deleted. An event that the processor gave up waits for a person, for any reason of its
// handler.
func TestRecordSettled(t *testing.T) {
	for name, c := range map[string]struct {
		record             dedup.Record
		discarded, settled bool
	}{
		"nothing":           {},
		"claimed":           {record: dedup.Record{State: dedup.Claimed}},
		"released":          {record: dedup.Record{State: dedup.Released}},
		"waiting":           {record: dedup.Record{State: dedup.Waiting}},
		"done":              {record: dedup.Record{State: dedup.Finished}, settled: true},
		"dead":              {record: dedup.Record{State: dedup.GivenUp, Reason: "permanent: no items"}},
		"dead, no reason":   {record: dedup.Record{State: dedup.GivenUp}},
		"discarded":         {dedup.Record{State: dedup.GivenUp, Reason: dedup.ReasonDiscarded + "spam"}, true, true},
		"discarded, no why": {dedup.Record{State: dedup.GivenUp, Reason: dedup.ReasonDiscarded}, true, true},
		"the word elsewhere": {record: dedup.Record{State: dedup.GivenUp,
			Reason: "permanent: " + dedup.ReasonDiscarded + "spam"}},
		"the word alone":    {record: dedup.Record{State: dedup.GivenUp, Reason: "discarded"}},
		"reopened":          {record: dedup.Record{State: dedup.Waiting, Reason: dedup.ReasonDiscarded + "spam"}},
		"claimed for spam":  {record: dedup.Record{State: dedup.Claimed, Reason: dedup.ReasonDiscarded}},
		"done, with reason": {record: dedup.Record{State: dedup.Finished, Reason: dedup.ReasonDiscarded}, settled: true},
	} {
		require.Equal(t, c.discarded, c.record.Discarded(), name)
		require.Equal(t, c.settled, c.record.Settled(), name)
	}
}
