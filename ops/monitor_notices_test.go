package ops

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// A ledger that is away when its processor is closed is not said to be back.
func TestMonitor_OutageThatIsNotSeenToEnd(t *testing.T) {
	m := NewMonitor()
	const name = "ledger *pgstore.Store"
	m.ObserveLedger(t.Context(), idem.LedgerEvent{Name: name, Down: true})
	require.Equal(t, "Ledger *pgstore.Store is away", m.notices.list(1)[0].Title)
	m.ObserveLedger(t.Context(), idem.LedgerEvent{Name: name, Ended: true, For: time.Minute})
	require.Equal(t, "Ledger *pgstore.Store is asked no longer", m.notices.list(1)[0].Title)
	m.ObserveLedger(t.Context(), idem.LedgerEvent{Name: name, For: time.Minute})
	require.Equal(t, "Ledger *pgstore.Store is back", m.notices.list(1)[0].Title)
}
