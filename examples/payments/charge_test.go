package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Rule 38: the forwarded key is the given one, and the request is the same at each attempt.
func TestChargeAsks(t *testing.T) {
	asked := make(chan string, 2)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := new(bytes.Buffer)
		_, _ = body.ReadFrom(r.Body)
		asked <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Idempotency-Key") + " " + body.String()
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"id":"ch_1"}`))
	}))
	defer srv.Close()
	c, err := newProviderClient(srv.URL+"/v1", time.Second, 1)
	require.NoError(t, err)
	defer c.close()
	for range 2 {
		id, err := c.charge(t.Context(), "k-1", &payment{ID: "p-1", CustomerID: "ada", Amount: 995, Currency: "EUR"})
		require.NoError(t, err)
		require.Equal(t, "ch_1", id)
		require.Equal(t, `POST /v1/charges k-1 {"amount":995,"currency":"EUR","customer":"ada","reference":"p-1"}`, <-asked)
	}
}

// The provider's answer decides whether the answer to the payment is stored. Only a decline is
// final.
func TestChargeAnswers(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   error // nil: any other error
		code   string
	}{
		{402, `{"code":"card_declined"}`, nil, "card_declined"},
		{402, `pay first, says a proxy`, nil, ""},
		{409, `{}`, errProviderAway, ""},
		{408, `{}`, errProviderAway, ""},
		{429, `{}`, errProviderAway, ""},
		{500, `{}`, errProviderAway, ""},
		{503, `no JSON`, errProviderAway, ""},
		{201, `{"id":`, nil, ""},
		{200, `{}`, nil, ""},
		{400, `{"code":"invalid_request"}`, nil, ""},
		{302, ``, nil, ""},
	} {
		id, err := readCharge(c.status, []byte(c.body))
		require.Error(t, err, "%d", c.status)
		require.Empty(t, id)
		if c.want != nil {
			require.ErrorIs(t, err, c.want, "%d", c.status)
		} else {
			require.NotErrorIs(t, err, errProviderAway, "%d", c.status)
		}
		declined, isDeclined := errors.AsType[*declinedError](err)
		require.Equal(t, c.code != "", isDeclined, "%d %s", c.status, c.body)
		if isDeclined {
			require.Equal(t, c.code, declined.code)
		}
	}
}

func TestChargeTimesOut(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		// a server notices a disconnect only after it has read the body
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer srv.Close()
	c, err := newProviderClient(srv.URL, 20*time.Millisecond, 1)
	require.NoError(t, err)
	defer c.close()
	_, err = c.charge(context.Background(), "k", &payment{})
	require.ErrorIs(t, err, errProviderAway)
	srv.CloseClientConnections()
	srv.Listener.Close()
	_, err = c.charge(t.Context(), "k", &payment{})
	require.ErrorIs(t, err, errProviderAway)
}

func TestProviderURL(t *testing.T) {
	for _, bad := range []string{"localhost:8090", "ftp://x", "http://", "://"} {
		_, err := newProviderClient(bad, time.Second, 1)
		require.ErrorContains(t, err, "http://", bad)
	}
}
