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

// paper is the world of the API: books in memory, with the promise of those in Postgres.
type paper struct {
	books // the other methods; no request of the test needs them
	*idemtest.Faults
	forgets bool // keeps no natural keys

	mu      sync.Mutex
	decided map[naturalKey]transfer
	booked  []order
}

func newPaper(_ testing.TB, f *idemtest.Faults) *paper {
	return &paper{Faults: f, decided: make(map[naturalKey]transfer)}
}

// decide implements books. The commit of the transaction is the call that may fail.
func (p *paper) decide(ctx context.Context, k naturalKey, o order) (t transfer, known bool, err error) {
	key := k.customer + "/" + k.key
	if p.forgets {
		key = ""
	}
	known = true
	err = p.CallWithKey(ctx, "commit", key, func() {
		known = false
		p.mu.Lock()
		defer p.mu.Unlock()
		p.booked = append(p.booked, o)
		p.decided[k] = transfer{ID: int64(len(p.booked)), order: o}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.decided[k], known, err
}

func (p *paper) state() any {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.booked
}

// api is the server of one process: the handler of the program, behind its middleware.
func api(store dedup.Store, p *paper) (h http.Handler, stop func()) {
	o := options{log: slog.New(slog.DiscardHandler)}
	front, err := httpidem.New(frontConfig(store, identity{"bank", []byte(strings.Repeat("s", 32))}, o))
	if err != nil {
		panic(err)
	}
	return (&service{bank: p, log: o.log}).handler(front), front.Close
}

func payRent() *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/transfers",
		strings.NewReader(`{"from":1,"to":2,"amount":25000,"currency":"EUR","reference":"rent"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer ann")
	r.Header.Set("Idempotency-Key", "november")
	return r
}

// No crash, pause or lost answer books a transfer twice or changes the answer, since the books
// have natural keys. The kit finds the second transfer of books without them.
func TestTransfer_Torture(t *testing.T) {
	idemtest.TortureHTTP(t, newPaper, api, payRent, (*paper).state, idemtest.Pairs(60))
	text, broken := idemtest.SearchHTTP(t, func(t testing.TB, f *idemtest.Faults) *paper {
		p := newPaper(t, f)
		p.forgets = true
		return p
	}, api, payRent, (*paper).state, idemtest.Pairs(0))
	require.True(t, broken)
	require.Contains(t, text, `had its effect 2 times`)
}
