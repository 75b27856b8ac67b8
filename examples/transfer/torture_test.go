package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/idemtest"
)

// books is the world of the API: a ledger in memory, with the promise of the one in Postgres.
type books struct {
	ledger // the other methods; no request of the test needs them
	*idemtest.Faults
	forgets bool // keeps no natural keys

	mu      sync.Mutex
	decided map[naturalKey]transfer
	booked  []order
}

func newBooks(_ testing.TB, f *idemtest.Faults) *books {
	return &books{Faults: f, decided: make(map[naturalKey]transfer)}
}

// decide implements ledger. The commit of the transaction is the call that may fail.
func (b *books) decide(ctx context.Context, k naturalKey, o order) (t transfer, known bool, err error) {
	key := k.customer + "/" + k.key
	if b.forgets {
		key = ""
	}
	known = true
	err = b.CallWithKey(ctx, "commit", key, func() {
		known = false
		b.mu.Lock()
		defer b.mu.Unlock()
		b.booked = append(b.booked, o)
		b.decided[k] = transfer{ID: int64(len(b.booked)), order: o}
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.decided[k], known, err
}

func (b *books) state() any {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.booked
}

// api is the server of one process: the handler of the program, behind its middleware.
func api(store dedup.Store, b *books) (h http.Handler, stop func()) {
	o := options{log: slog.New(slog.DiscardHandler)}
	front, err := httpidem.New(frontConfig(store, identity{"bank", []byte(strings.Repeat("s", 32))}, o))
	if err != nil {
		panic(err)
	}
	return (&service{bank: b, log: o.log}).handler(front), front.Close
}

func payRent() *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/transfers",
		strings.NewReader(`{"from":1,"to":2,"amount":25000,"currency":"EUR","reference":"rent"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer ann")
	r.Header.Set("Idempotency-Key", "november")
	return r
}

// No crash, pause or lost answer books a transfer twice or changes the answer, since the ledger
// knows natural keys. The kit finds the second transfer of a ledger without them.
func TestTransfer_Torture(t *testing.T) {
	idemtest.TortureHTTP(t, newBooks, api, payRent, (*books).state, idemtest.Pairs(60))
	text, broken := idemtest.SearchHTTP(t, func(t testing.TB, f *idemtest.Faults) *books {
		b := newBooks(t, f)
		b.forgets = true
		return b
	}, api, payRent, (*books).state, idemtest.Pairs(0))
	require.True(t, broken)
	require.Contains(t, text, `had its effect 2 times`)
}
