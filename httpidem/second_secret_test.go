package httpidem_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/jackc/pgx/v5"
)

// instance is one instance of an API, with New or NewTx.
func instance(t *testing.T, s dedup.Store, tx bool, change func(*httpidem.Config)) http.Handler {
	t.Helper()
	cfg := httpidem.Config{
		Store: s, Scope: "api", Public: true, Secret: []byte("older-0123456789"),
	}
	change(&cfg)
	open := httpidem.New
	if tx {
		open = httpidem.NewTx[pgx.Tx]
	}
	m, err := open(cfg)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m.Lookup(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte("paid " + r.URL.Path))
	})))
}

func postTo(h http.Handler, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// onStores runs a test on the memory, and in transactions of Postgres.
func onStores(t *testing.T, test func(t *testing.T, s dedup.Store, tx bool)) {
	t.Run("memory", func(t *testing.T) { test(t, memstore.New(), false) })
	t.Run("postgres", func(t *testing.T) {
		url := testenv.Postgres(t)
		pool := newPool(t, url, 4)
		require.NoError(t, pgstore.Migrate(t.Context(), pool))
		t.Run("claim", func(t *testing.T) { test(t, pgstore.New(pool), false) })
		t.Run("tx", func(t *testing.T) { test(t, pgstore.New(pool), true) })
	})
}

// G-08: instances of two steps run beside each other, and each replays the answers of the other.
func TestSecondSecret_Rotation_G08(t *testing.T) {
	older, newer := []byte("older-0123456789"), []byte("newer-0123456789")
	steps := []struct {
		name          string
		first, second []byte
	}{
		{"older", older, nil}, {"older and newer", older, newer},
		{"newer and older", newer, older}, {"newer", newer, nil},
	}
	onStores(t, func(t *testing.T, s dedup.Store, tx bool) {
		at := make([]http.Handler, len(steps))
		for i, step := range steps {
			at[i] = instance(t, s, tx, func(c *httpidem.Config) {
				c.Secret, c.SecondSecret = step.first, step.second
			})
		}
		for i := range steps[1:] {
			for _, pair := range [][2]int{{i, i + 1}, {i + 1, i}} {
				key := steps[pair[0]].name + steps[pair[1]].name
				require.Equal(t, http.StatusCreated, postTo(at[pair[0]], key, "7").Code)
				again := postTo(at[pair[1]], key, "7")
				require.Equal(t, http.StatusCreated, again.Code, key)
				require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"), key)
				require.Equal(t, http.StatusUnprocessableEntity, postTo(at[pair[1]], key, "8").Code)
			}
		}
		require.Equal(t, http.StatusCreated, postTo(at[0], "skipped", "7").Code)
		require.Equal(t, http.StatusUnprocessableEntity, postTo(at[3], "skipped", "7").Code,
			"without the steps between, a retry would be another request")
	})
}

func TestSecondSecret_Config(t *testing.T) {
	cfg := httpidem.Config{
		Store: memstore.New(), Scope: "api", Public: true,
		Secret: []byte("older-0123456789"), SecondSecret: []byte("short"),
	}
	_, err := httpidem.New(cfg)
	require.ErrorContains(t, err, "SecondSecret has less than 16 bytes")
	cfg.AnyPayload, cfg.SecondSecret = true, []byte("newer-0123456789")
	_, err = httpidem.New(cfg)
	require.ErrorContains(t, err, "SecondSecret and AnyPayload")
}
