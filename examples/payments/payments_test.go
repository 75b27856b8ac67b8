package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/examples/payments/provider"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/testenv"
)

// faults decides about faults of the provider. Tests may change it while requests come.
type faults struct {
	atomic.Pointer[func(provider.Request) provider.Fault]
}

func (f *faults) decide(r provider.Request) provider.Fault {
	if fn := f.Load(); fn != nil {
		return (*fn)(r)
	}
	return provider.ByCustomer(r)
}

func (f *faults) set(fn func(provider.Request) provider.Fault) { f.Store(&fn) }

// shop is the API without a process of its own, on a real Postgres, with a provider.
type shop struct {
	t        testing.TB
	pool     *pgxpool.Pool // of the test itself
	provider *provider.Server
	faults   *faults
	cashier  *cashier
	api      http.Handler
}

// newShop opens a shop. configure changes the shop's own pool.
func newShop(t testing.TB, configure ...func(*pgxpool.Config)) *shop {
	t.Helper()
	s := &shop{t: t, faults: &faults{}}
	url := testenv.Postgres(t)
	var err error
	s.pool, err = newPool(t.Context(), url, 5)
	require.NoError(t, err)
	t.Cleanup(s.pool.Close)
	require.NoError(t, migrate(t.Context(), s.pool))
	// a table without constraints
	_, err = s.pool.Exec(t.Context(), `CREATE TABLE announced (payment_id text)`)
	require.NoError(t, err)

	s.provider = provider.New(s.faults.decide)
	srv := httptest.NewServer(s.provider)
	t.Cleanup(srv.Close)
	client, err := newProviderClient(srv.URL, 10*time.Second, 10)
	require.NoError(t, err)
	t.Cleanup(client.close)

	cfg := s.pool.Config()
	cfg.MaxConns = 10
	for _, change := range configure {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	m, err := newMiddleware(pgstore.New(pool), []byte(demoSecret), nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(m.Close)
	s.cashier = &cashier{provider: client, log: slog.New(slog.DiscardHandler), completed: announce}
	s.api = routes(m, s.cashier, reader{s.pool})
	return s
}

// announce stands in for an outbox.
func announce(ctx context.Context, tx pgx.Tx, p payment) error {
	_, err := tx.Exec(ctx, `INSERT INTO announced VALUES ($1)`, p.ID)
	return err
}

// answer is the answer that a client gets.
type answer struct {
	status   int
	body     string
	replayed bool
}

func (a answer) id(t testing.TB) string {
	t.Helper()
	var p payment
	require.Equal(t, http.StatusCreated, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &p))
	require.NotEmpty(t, p.ID)
	return p.ID
}

func wish(order, customer string, amount int) string {
	return fmt.Sprintf(`{"order_id":%q,"amount":%d,"currency":"EUR","customer_id":%q}`, order, amount, customer)
}

// post sends a payment of an account.
func (s *shop) post(account, key, body string) answer {
	r := httptest.NewRequestWithContext(context.WithoutCancel(s.t.Context()), http.MethodPost, "/payments", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if account != "" {
		r.Header.Set("X-Account", account)
	}
	if key != "" {
		r.Header.Set(httpidem.DefaultHeader, key)
	}
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r)
	b, _ := io.ReadAll(w.Result().Body)
	return answer{w.Code, string(b), w.Header().Get(httpidem.DefaultReplayedHeader) == "true"}
}

func count(t testing.TB, pool *pgxpool.Pool, query string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.WithoutCancel(t.Context()), query, args...).Scan(&n), query)
	return n
}

// require counts payments with their charges, charges, and records in the store.
func (s *shop) require(payments, charges, remembered int) {
	s.t.Helper()
	require.Equal(s.t, payments, count(s.t, s.pool, `SELECT count(*) FROM payments WHERE charge_id IS NOT NULL`), "payments")
	require.Equal(s.t, payments, count(s.t, s.pool, `SELECT count(*) FROM payments`), "payments without a charge")
	require.Equal(s.t, payments, count(s.t, s.pool, `SELECT count(*) FROM announced`), "announced")
	require.Len(s.t, s.provider.Charges(), charges, "charges")
	require.Equal(s.t, remembered, count(s.t, s.pool, `SELECT count(*) FROM processed_events`), "keys")
}

func (s *shop) forget() {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), `DELETE FROM processed_events`)
	require.NoError(s.t, err)
}

// 20 copies at once and one later: one payment, one charge, one answer.
func TestPaymentSentAgain_Idempotent(t *testing.T) {
	s := newShop(t)
	var all sync.WaitGroup
	answers := make(chan answer, 20)
	for range 20 {
		all.Go(func() { answers <- s.post("shop", "k-1", wish("o-1", "ada", 995)) })
	}
	all.Wait()
	close(answers)
	last := s.post("shop", "k-1", wish("o-1", "ada", 995))
	require.True(t, last.replayed)
	ran := 0
	for a := range answers {
		require.Equal(t, last.id(t), a.id(t))
		require.Equal(t, last.body, a.body)
		if !a.replayed {
			ran++
		}
	}
	require.Equal(t, 1, ran)
	s.require(1, 1, 1)
	require.Equal(t, last.id(t), s.provider.Charges()[0].Reference)
}

// Each layer holds after the one in front of it has lost its data.
func TestThreeLayers_Idempotent(t *testing.T) {
	s := newShop(t)
	first := s.post("shop", "k-1", wish("o-1", "ada", 995))
	key := s.provider.Charges()[0].Key
	s.require(1, 1, 1)

	s.forget() // the stored answer has expired: the UNIQUE constraint finds the payment
	again := s.post("shop", "k-1", wish("o-1", "ada", 995))
	require.False(t, again.replayed)
	require.Equal(t, first.body, again.body)
	require.Equal(t, 1, s.provider.Attempts(key), "the provider is not asked")
	s.require(1, 1, 1)
	s.forget()
	other := s.post("shop", "k-1", wish("o-1", "ada", 996))
	require.Equal(t, http.StatusUnprocessableEntity, other.status, other.body)

	s.forget() // the database is lost too: the provider knows the key
	_, err := s.pool.Exec(t.Context(), `TRUNCATE payments, announced`)
	require.NoError(t, err)
	last := s.post("shop", "k-1", wish("o-1", "ada", 995))
	require.Equal(t, first.body, last.body)
	require.Equal(t, 2, s.provider.Attempts(key))
	s.require(1, 1, 1)
}

func TestOtherPaymentUnderOneKey(t *testing.T) {
	s := newShop(t)
	s.post("shop", "k-1", wish("o-1", "ada", 995)).id(t)
	for _, body := range []string{wish("o-1", "ada", 996), wish("o-2", "ada", 995), wish("o-1", "bob", 995)} {
		a := s.post("shop", "k-1", body)
		require.Equal(t, http.StatusUnprocessableEntity, a.status, a.body)
	}
	s.require(1, 1, 1)
}

// Accounts are separate in the store, in the table and at the provider (rule 37).
func TestAccounts(t *testing.T) {
	s := newShop(t)
	ids := map[string]bool{}
	for _, account := range []string{"", "a", "b"} {
		ids[s.post(account, "k-1", wish("o-1", "ada", 995)).id(t)] = true
	}
	require.Len(t, ids, 3)
	s.require(3, 3, 3)
}

// Rule 20: a decline is an answer. It is stored without the row that was written before it. Another
// key may try again.
func TestDeclineIsKeptWithoutEffects(t *testing.T) {
	s := newShop(t)
	first := s.post("shop", "k-1", wish("o-1", "declined", 995))
	require.Equal(t, http.StatusPaymentRequired, first.status, first.body)
	require.Contains(t, first.body, "card_declined")
	s.require(0, 0, 1)
	s.faults.set(func(provider.Request) provider.Fault {
		t.Error("the provider was asked again")
		return provider.Fault{}
	})
	again := s.post("shop", "k-1", wish("o-1", "declined", 995))
	require.Equal(t, answer{first.status, first.body, true}, again)
	s.faults.set(func(provider.Request) provider.Fault { return provider.Fault{} })
	s.post("shop", "k-2", wish("o-1", "declined", 995)).id(t)
	s.require(1, 1, 2)
}

// An unknown outcome is not stored. The same request runs again, and the provider gets the same key
// (rule 38).
func TestProviderAway_Idempotent(t *testing.T) {
	for name, c := range map[string]struct {
		fault   provider.Fault
		charges int
	}{
		"before the charge": {provider.Fault{Unavailable: true}, 0},
		"after the charge":  {provider.Fault{Hang: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			keys := make(chan string, 2)
			s.faults.set(func(r provider.Request) provider.Fault {
				keys <- r.Key
				if r.Attempt == 1 {
					return c.fault
				}
				return provider.Fault{}
			})
			limit := s.cashier.provider.http.Timeout
			if c.fault.Hang {
				s.cashier.provider.http.Timeout = 2 * time.Second // the charge takes less
			}
			a := s.post("shop", "k-1", wish("o-1", "ada", 995))
			require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
			require.Contains(t, a.body, "try_again")
			s.cashier.provider.http.Timeout = limit
			s.require(0, c.charges, 0)
			a = s.post("shop", "k-1", wish("o-1", "ada", 995))
			require.Equal(t, a.id(t), s.provider.Charges()[0].Reference)
			require.False(t, a.replayed)
			s.require(1, 1, 1)
			first := <-keys
			require.Equal(t, first, <-keys)
		})
	}
}

// A statement that fails after the charge rolls back row, key and answer. The retry finds the
// charge.
func TestSQLErrorRollsBack_Idempotent(t *testing.T) {
	s := newShop(t)
	s.cashier.completed = func(ctx context.Context, tx pgx.Tx, p payment) error {
		return errors.Join(announce(ctx, tx, p), func() error {
			_, err := tx.Exec(ctx, `INSERT INTO payments (id) VALUES ('incomplete')`)
			return err
		}())
	}
	a := s.post("shop", "k-1", wish("o-1", "ada", 995))
	require.Equal(t, http.StatusInternalServerError, a.status, a.body)
	s.require(0, 1, 0)
	s.cashier.completed = announce
	a = s.post("shop", "k-1", wish("o-1", "ada", 995))
	require.Equal(t, a.id(t), s.provider.Charges()[0].Reference)
	s.require(1, 1, 1)
}

// The database goes away between charge and COMMIT. The client is asked to retry.
func TestConnectionLostAfterCharge_Idempotent(t *testing.T) {
	s := newShop(t)
	s.faults.set(func(r provider.Request) provider.Fault {
		if r.Attempt > 1 {
			return provider.Fault{}
		}
		return provider.Fault{AfterCharge: func(ctx context.Context) {
			_, err := s.pool.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_locks
				WHERE relation = to_regclass('payments') AND mode = 'RowExclusiveLock' AND granted`)
			if err != nil {
				t.Error(err)
			}
		}}
	})
	a := s.post("shop", "k-1", wish("o-1", "ada", 995))
	require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
	s.require(0, 1, 0)
	a = s.post("shop", "k-1", wish("o-1", "ada", 995))
	require.Equal(t, a.id(t), s.provider.Charges()[0].Reference)
	s.require(1, 1, 1)
}

// An order is paid once. Another key for the order is refused and never reaches the provider.
func TestOrderPaidTwice(t *testing.T) {
	s := newShop(t)
	first := s.post("shop", "k-1", wish("o-1", "ada", 995))
	again := s.post("shop", "k-2", wish("o-1", "ada", 995))
	require.Equal(t, http.StatusConflict, again.status, again.body)
	require.Contains(t, again.body, "order_already_paid")
	require.True(t, s.post("shop", "k-2", wish("o-1", "ada", 995)).replayed)
	require.Equal(t, first.body, s.post("shop", "k-1", wish("o-1", "ada", 995)).body)
	s.require(1, 1, 2)
}

// The same at one moment: the uncommitted row is the lock. If the first payment is declined, the
// second is made.
func TestOrderPaidTwiceAtOnce(t *testing.T) {
	for name, decline := range map[string]bool{"first succeeds": false, "first is declined": true} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			first, goOn := make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { close(goOn) })
			t.Cleanup(release)
			var asked atomic.Int32
			s.faults.set(func(provider.Request) provider.Fault {
				if asked.Add(1) > 1 {
					return provider.Fault{}
				}
				return provider.Fault{Decline: decline, AfterCharge: func(context.Context) {
					close(first)
					<-goOn
				}}
			})
			answers := make(chan answer, 2)
			var both sync.WaitGroup
			both.Go(func() { answers <- s.post("shop", "k-1", wish("o-1", "ada", 995)) })
			<-first
			both.Go(func() { answers <- s.post("shop", "k-2", wish("o-1", "ada", 995)) })
			require.Eventually(t, func() bool {
				return count(t, s.pool, `SELECT count(*) FROM pg_stat_activity
					WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO payments%'
					AND pid IN (SELECT pid FROM pg_locks WHERE relation = to_regclass('payments'))`) == 1
			}, 5*time.Second, 5*time.Millisecond)
			release()
			both.Wait()
			statuses := []int{(<-answers).status, (<-answers).status}
			want := []int{http.StatusCreated, http.StatusConflict}
			if decline {
				want[1] = http.StatusPaymentRequired
			}
			require.ElementsMatch(t, want, statuses)
			s.require(1, 1, 2)
		})
	}
}

// An invalid request does not use up its key.
func TestInvalidPayments(t *testing.T) {
	s := newShop(t)
	for _, body := range []string{
		``, `pay`, `[]`, `{}`, wish("", "ada", 995), wish("o-1", "", 995), wish("o-1", "ada", 0), wish("o-1", "ada", -5),
		`{"order_id":"o-1","amount":9.95,"currency":"EUR","customer_id":"ada"}`,
		`{"order_id":"o-1","amount":995,"currency":"euro","customer_id":"ada"}`,
		wish(strings.Repeat("o", 201), "ada", 995), `{"order_id":"o\u0000","amount":995,"currency":"EUR","customer_id":"ada"}`,
	} {
		a := s.post("shop", "k-1", body)
		require.Equal(t, http.StatusBadRequest, a.status, "%q: %s", body, a.body)
		require.False(t, a.replayed)
	}
	a := s.post("shop", "", wish("o-1", "ada", 995))
	require.Equal(t, http.StatusBadRequest, a.status)
	require.Contains(t, a.body, "idempotency_key_missing")
	s.require(0, 0, 0)
	s.post("shop", "k-1", wish("o-1", "ada", 995)).id(t)
	s.require(1, 1, 1)
}

// Amounts in quotes and numeric IDs are accepted.
func TestNumbersAndStrings(t *testing.T) {
	s := newShop(t)
	for key, body := range map[string]string{
		"as texts":   `{"order_id":"17","amount":"995","currency":"EUR","customer_id":"7"}`,
		"as numbers": `{"order_id":18,"amount":995,"currency":"EUR","customer_id":7}`,
	} {
		a := s.post("", key, body)
		a.id(t)
		require.Contains(t, a.body, `"amount":995,`)
		require.Contains(t, a.body, `"customer_id":"7"`)
	}
	again := s.post("", "another", `{"order_id":"18","amount":995,"currency":"EUR","customer_id":"7"}`)
	require.Equal(t, http.StatusConflict, again.status, "18 is the order 18")
	s.require(2, 2, 3)
}

// A provider that was restarted has lost its charges. It never gives a new charge an ID that is in
// the database.
func TestProviderStartedAnew(t *testing.T) {
	s := newShop(t)
	ids := make(map[string]bool)
	for range 2 {
		server := httptest.NewServer(provider.New(nil))
		defer server.Close()
		client, err := newProviderClient(server.URL, time.Second, 1)
		require.NoError(t, err)
		defer client.close()
		s.cashier.provider = client
		n := fmt.Sprint("order-", len(ids))
		ids[s.post("", n, wish(n, "ada", 995)).id(t)] = true
	}
	require.Len(t, ids, 2)
}

func TestListAndHealth(t *testing.T) {
	s := newShop(t)
	get := func(path string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		w := httptest.NewRecorder()
		s.api.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	status, body := get("/payments")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"count":0,"payments":[]}`, body)
	for i := range listed + 1 {
		s.post("", fmt.Sprint("k-", i), wish(fmt.Sprint("o-", i), "ada", 995)).id(t)
	}
	s.post("other", "k-1", wish("o-1", "ada", 995)).id(t)
	_, body = get("/payments")
	var list struct {
		Count    int
		Payments []payment
	}
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	require.Equal(t, listed+1, list.Count)
	require.Len(t, list.Payments, listed)
	status, body = get("/healthz")
	require.Equal(t, http.StatusOK, status, body)
}
