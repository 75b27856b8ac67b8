package httpidemtest

import (
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// Harness creates stores and sets the size of the tests.
type Harness struct {
	// NewStore returns an empty store, apart from all others, and registers the clean-up with
	// t.Cleanup. Required.
	NewStore func(t testing.TB) dedup.Store
	// Peer returns a second client of the store of s, as in another process. Nil: s is also the
	// peer.
	Peer func(t testing.TB, s dedup.Store) dedup.Store
	// Callers is the number of callers that send one key at the same time; default 200. Keys is the
	// number of such keys; default 500.
	Callers, Keys int
	// AtOnce is the number of keys with callers at the same time; default 4. A transactional store
	// needs as many connections, and some more.
	AtOnce int
	// HangUps is the number of clients that hang up at each of the tested moments; default 10.
	HangUps int
	// Lease is the short lease of the test in which a lease ends; default 500 ms.
	Lease time.Duration
	// Blind means that the store has no look-up ([dedup.Looker], or [dedup.TxLooker] in RunTx).
	// Default: false.
	Blind bool
}

func (h Harness) ready(t *testing.T) Harness {
	require.NotNil(t, h.NewStore, "Harness.NewStore is required")
	for _, n := range []struct {
		value *int
		usual int
	}{{&h.Callers, 200}, {&h.Keys, 500}, {&h.AtOnce, 4}, {&h.HangUps, 10}} {
		if *n.value <= 0 {
			*n.value = n.usual
		}
	}
	if h.Lease <= 0 {
		h.Lease = 500 * time.Millisecond
	}
	if h.Peer == nil {
		h.Peer = func(_ testing.TB, s dedup.Store) dedup.Store { return s }
	}
	return h
}
