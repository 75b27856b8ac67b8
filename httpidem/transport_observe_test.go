package httpidem

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Each request that was sent is observed once, after the last attempt.
func TestTransportObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var observed []Sending
		observe := func(ctx context.Context, s Sending) {
			require.Equal(t, "pay-1", KeyOf(s.Request.WithContext(ctx)))
			observed = append(observed, s)
		}
		only := func() Sending {
			require.Len(t, observed, 1)
			s := observed[0]
			observed = nil
			s.Request = nil
			return s
		}
		ctx := WithKey(t.Context(), "pay-1")
		began := time.Now()
		resp, err := post(ctx, t, &Transport{Base: answers(503, 0, 201), Observe: observe}, "x")
		require.NoError(t, err)
		readAll(t, resp)
		require.Equal(t, Sending{Attempts: 3, Status: 201, Took: time.Since(began)}, only())

		replay := &fakeServer{
			script: func(int, *http.Request) (*http.Response, error) {
				return response(503, "Seen", "true"), nil
			},
		}
		resp, err = post(ctx, t, &Transport{Base: replay, ReplayedHeader: "Seen", Observe: observe},
			"x")
		require.NoError(t, err)
		readAll(t, resp)
		require.Equal(t, Sending{Attempts: 1, Status: 503, Replayed: true}, only())

		_, err = post(ctx, t, &Transport{Base: answers(0), Attempts: 2, Observe: observe}, "x")
		failed, ok := errors.AsType[*SendError](err)
		require.True(t, ok)
		s := only()
		require.Equal(t, []any{2, 0, failed}, []any{s.Attempts, s.Status, s.Err})

		_, err = post(ctx, t, &Transport{Base: answers(201), MaxBody: 1, Observe: observe}, "body")
		require.NoError(t, err, "strings have GetBody")
		only()
		_, err = post(WithKey(t.Context(), strings.Repeat("x", 300)), t,
			&Transport{Base: answers(201), Observe: observe}, "x")
		require.ErrorIs(t, err, ErrKey)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
		require.NoError(t, err)
		resp, err = (&Transport{Base: answers(200), Observe: observe}).RoundTrip(r)
		require.NoError(t, err)
		readAll(t, resp)
		require.Empty(t, observed)
	})
}
