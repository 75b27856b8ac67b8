package ops

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// A store that is away when its processor is closed is not said to be back.
func TestMonitor_OutageThatIsNotSeenToEnd(t *testing.T) {
	m := NewMonitor()
	const name = "store *pgstore.Store"
	m.ObserveStore(t.Context(), observe.StoreEvent{Name: name, Down: true})
	require.Equal(t, "Store *pgstore.Store is away", m.notices.list(1)[0].Title)
	m.ObserveStore(t.Context(), observe.StoreEvent{Name: name, Ended: true, For: time.Minute})
	require.Equal(t, "Store *pgstore.Store is asked no longer", m.notices.list(1)[0].Title)
	m.ObserveStore(t.Context(), observe.StoreEvent{Name: name, For: time.Minute})
	require.Equal(t, "Store *pgstore.Store is back", m.notices.list(1)[0].Title)
}

// Copies that differ are one notice for each type of event.
func TestMonitor_Conflict(t *testing.T) {
	m := NewMonitor()
	for i, typ := range []string{"paid", "paid", "sent"} {
		m.ObserveConflict(t.Context(), observe.ConflictEvent{
			Message: &idem.Message{Topic: "orders", Partition: 2, Offset: int64(i)}, Key: dedup.Key{Type: typ, ID: "7"}, DeadLetter: i == 2,
		})
	}
	all := m.notices.list(9)
	require.Len(t, all, 2)
	require.Equal(t, "sent 7 at orders/2 offset 2: it was dead-lettered", all[0].Text)
	require.Equal(t, "paid 7 at orders/2 offset 1: it was skipped", all[1].Text)
	require.Equal(t, 2, all[1].Times)
}

// A cut of a log is not said to be the range of the log.
func TestMonitor_Gap_K32(t *testing.T) {
	for name, c := range map[string]struct {
		event       observe.GapEvent
		title, text string
	}{
		"deleted": {
			observe.GapEvent{Committed: 10, Oldest: 15, Newest: 20},
			"Records are gone that were not consumed",
			"orders/2: to go on with 10, and the log has 15 to 20; policy: latest",
		},
		"cut": {
			observe.GapEvent{Committed: 10, Oldest: 3, Newest: 3, Cut: true},
			"A log was cut",
			"orders/2: cut at 3, below the next record 10, and other records may have taken the offsets; policy: latest",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMonitor()
			c.event.Topic, c.event.Partition, c.event.Policy = "orders", 2, "latest"
			m.ObserveGap(t.Context(), c.event)
			latest := m.notices.list(1)[0]
			require.Equal(t, c.title, latest.Title)
			require.Equal(t, c.text, latest.Text)
		})
	}
}
