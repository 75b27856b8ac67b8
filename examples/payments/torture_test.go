package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtest"
)

// till is the world of a charge: the provider, without a network.
type till struct {
	*idemtest.Faults
	client      *providerClient
	ignoresKeys bool
	charges     []string
}

func newTill(t testing.TB, f *idemtest.Faults) *till {
	w := &till{Faults: f}
	var err error
	w.client, err = newProviderClient("http://provider.example", 5*time.Second, 1)
	require.NoError(t, err)
	w.client.http.Transport = w
	return w
}

// RoundTrip implements [http.RoundTripper].
func (w *till) RoundTrip(r *http.Request) (*http.Response, error) {
	key, body := r.Header.Get("Idempotency-Key"), new(strings.Builder)
	if _, err := io.Copy(body, r.Body); err != nil {
		return nil, err
	}
	if w.ignoresKeys {
		key = ""
	}
	err := w.CallWithKey(r.Context(), "charge", key, func() {
		w.charges = append(w.charges, body.String())
	})
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusCreated, Body: io.NopCloser(strings.NewReader(`{"id":"ch_1"}`)), Request: r,
	}, nil
}

func (w *till) state() any { return w.charges }

// charge is the code under test: the client of the provider in a call of Do.
func charge(ctx context.Context, g *dedup.Guard, w *till) (id string, replayed bool, err error) {
	key := dedup.Key{Scope: scope, Type: "charge", ID: "p-1"}
	return dedup.Do(ctx, g, key, func(ctx context.Context) (string, error) {
		return w.client.charge(ctx, key.ID, &payment{ID: "p-1", CustomerID: "ada", Amount: 995, Currency: "EUR"})
	})
}

// No crash, pause or lost answer charges twice, since the client forwards a key. The kit finds the
// second charge if the provider ignores the key.
func TestCharge_Torture(t *testing.T) {
	rerun := idemtest.Guard(dedup.GuardConfig{Rerun: true}) // the provider knows the key
	idemtest.TortureDo(t, newTill, charge, (*till).state, rerun, idemtest.Pairs(60))
	text, broken := idemtest.SearchDo(t, func(t testing.TB, f *idemtest.Faults) *till {
		w := newTill(t, f)
		w.ignoresKeys = true
		return w
	}, charge, (*till).state, rerun, idemtest.Pairs(0))
	require.True(t, broken)
	require.Contains(t, text, `"charge" for event "p-1" had its effect 2 times`)
}
