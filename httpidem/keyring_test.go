package httpidem_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// storedAnswer returns the answer as the store has it.
func storedAnswer(t *testing.T, s dedup.Store, key dedup.Key, tx bool) dedup.Result {
	t.Helper()
	look := s.(dedup.Looker).Look
	if tx {
		look = s.(dedup.TxLooker).LookTx
	}
	var answers [1]dedup.Answer
	req := dedup.Request{Key: key, Retention: time.Hour, AnyAge: true}
	require.NoError(t, look(t.Context(), []dedup.Request{req}, answers[:]))
	require.Equal(t, dedup.Done.String(), answers[0].Verdict.String())
	return answers[0].Result
}

// G-13: keys change step by step, and each instance replays the answers of the one before and of
// the one after.
func TestKeyring_Rotation_G13(t *testing.T) {
	a, b := bytes.Repeat([]byte("a"), 32), bytes.Repeat([]byte("b"), 32)
	steps := []dedup.KeyringConfig{
		{},
		{Keys: map[string][]byte{"a": a}},
		{Keys: map[string][]byte{"a": a}, SealWith: "a"},
		{Keys: map[string][]byte{"a": a, "b": b}, SealWith: "a"},
		{Keys: map[string][]byte{"a": a, "b": b}, SealWith: "b"},
		{Keys: map[string][]byte{"b": b}, SealWith: "b", RefuseUnsealed: true},
	}
	onStores(t, func(t *testing.T, s dedup.Store, tx bool) {
		var last httpidem.Observation
		at := make([]http.Handler, len(steps))
		for i, step := range steps {
			at[i] = instance(t, s, tx, func(c *httpidem.Config) {
				if step.Keys != nil {
					k, err := dedup.NewKeyring(step)
					require.NoError(t, err)
					c.Keyring = k
				}
				c.Observe = func(_ context.Context, o httpidem.Observation) {
					last = o
				}
			})
		}
		for i := range steps[1:] {
			for _, pair := range [][2]int{{i, i + 1}, {i + 1, i}} {
				key := fmt.Sprint("k-", pair[0], pair[1])
				require.Equal(t, http.StatusCreated, postTo(at[pair[0]], key, "7").Code)
				stored := storedAnswer(t, s, last.Key, tx)
				require.Equal(t, pair[0] < 2, bytes.Contains(stored.Data, []byte("paid")))
				again := postTo(at[pair[1]], key, "7")
				require.Equal(t, http.StatusCreated, again.Code, key)
				require.Equal(t, "paid /pay", again.Body.String())
				require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
				require.Equal(t, http.StatusUnprocessableEntity, postTo(at[pair[1]], key, "8").Code)
			}
		}
		// A step that is left out: an error, never a run, and never a part of the answer.
		for _, c := range [][2]int{{2, 0}, {2, 5}, {0, 5}} {
			key := fmt.Sprint("left out ", c)
			require.Equal(t, http.StatusCreated, postTo(at[c[0]], key, "7").Code)
			again := postTo(at[c[1]], key, "7")
			require.Equal(t, http.StatusInternalServerError, again.Code)
			require.Contains(t, again.Body.String(), "answer_sealed")
			require.NotContains(t, again.Body.String(), "paid")
			require.Empty(t, again.Header().Get("Idempotent-Replayed"))
			require.Equal(t, httpidem.NotReplayable, last.Result)
			require.ErrorIs(t, last.Err, dedup.ErrSealed)
			require.Equal(t, http.StatusCreated, postTo(at[c[0]], key, "7").Code, "nothing is lost")
		}
	})
}

// The limit of a store counts the sealed bytes.
func TestKeyring_LimitOfTheStore(t *testing.T) {
	k, err := dedup.NewKeyring(dedup.KeyringConfig{
		Keys: map[string][]byte{"a": make([]byte, 32)}, SealWith: "a",
	})
	require.NoError(t, err)
	const room = 16 << 10 // status and headers
	s := &limitedStore{memstore.New(), room + k.Overhead() + 8}
	for body, status := range map[string]int{"12345678": 201, "123456789": 409} {
		cfg := httpidem.Config{
			Store: s, Scope: "api", Public: true, AnyPayload: true, Keyring: k,
		}
		m, err := httpidem.New(cfg)
		require.NoError(t, err)
		h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(body))
		}))
		require.Equal(t, http.StatusCreated, postTo(h, body, "").Code)
		require.Equal(t, status, postTo(h, body, "").Code, body)
		m.Close()
	}
}

type limitedStore struct {
	dedup.Store
	max int
}

func (s *limitedStore) MaxResult() int { return s.max }
