package provider_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/payments/provider"
)

func post(t testing.TB, s *provider.Server, key, body string) (int, string) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	b, _ := io.ReadAll(w.Result().Body)
	return w.Code, string(b)
}

const ten = `{"amount":1000,"currency":"EUR","customer":"ada","reference":"p1"}`

func TestChargedOncePerKey_Idempotent(t *testing.T) {
	s := provider.New(nil)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { _, _ = post(t, s, "k1", ten) })
	}
	all.Wait()
	status, body := post(t, s, "k1", ten)
	require.Equal(t, http.StatusCreated, status)
	require.Contains(t, body, `"id":"ch_`)
	require.Equal(t, 21, s.Attempts("k1"))
	status, body = post(t, s, "k1", strings.Replace(ten, "1000", "1001", 1))
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, "for_another_charge")
	status, _ = post(t, s, "k2", ten)
	require.Equal(t, http.StatusCreated, status)
	require.Len(t, s.Charges(), 2)
}

func TestFaults(t *testing.T) {
	s := provider.New(func(r provider.Request) provider.Fault {
		f := provider.ByCustomer(r)
		f.Unavailable = f.Unavailable && r.Attempt == 1
		return f
	})
	for range 2 { // a decline is stored
		status, body := post(t, s, "k1", strings.Replace(ten, "ada", "declined", 1))
		require.Equal(t, http.StatusPaymentRequired, status)
		require.Contains(t, body, "card_declined")
	}
	down := strings.Replace(ten, "ada", "unavailable", 1)
	status, _ := post(t, s, "k2", down)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Empty(t, s.Charges())
	status, _ = post(t, s, "k2", down) // an outage is not stored
	require.Equal(t, http.StatusCreated, status)
	for _, bad := range []string{"", "{}", `{"amount":-1}`} {
		status, _ = post(t, s, "k3", bad)
		require.Equal(t, http.StatusBadRequest, status)
	}
	status, _ = post(t, s, "", ten)
	require.Equal(t, http.StatusBadRequest, status)
	require.Len(t, s.Charges(), 1)
}

// A client can list all charges and count them.
func TestList(t *testing.T) {
	s := provider.New(nil)
	for i := range 30 {
		_, _ = post(t, s, fmt.Sprint("k", i), ten)
	}
	for query, want := range map[string]int{"": 20, "?last=3": 3, "?last=1000": 30, "?last=-1": 0, "?last=all": 20} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/charges"+query, nil))
		var list struct {
			Count   int
			Charges []provider.Charge
		}
		require.NoError(t, json.NewDecoder(w.Body).Decode(&list))
		require.Equal(t, 30, list.Count, query)
		require.Len(t, list.Charges, want, query)
	}
}
