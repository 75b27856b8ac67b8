package canary

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
)

// order is the payload of the handlers. Every field may hold a secret.
type order struct {
	Mail    string     `json:"mail"`
	Amount  int        `json:"amount"`
	At      time.Time  `json:"at"`
	From    netip.Addr `json:"from"`
	Count   int        `json:"count,string"`
	Special special    `json:"special"`
}

// special has a decoder of its own, which quotes its input, as most do.
type special struct{}

// UnmarshalJSON implements [json.Unmarshaler].
func (*special) UnmarshalJSON(b []byte) error { return fmt.Errorf("no special order: %s", b) }

// record has a secret in its value, its key, and the names and values of its headers. By contract
// it has no secret in its ID and its type, which make the key of each line.
func (h *house) record(id, typ, value string) *idem.Message {
	return &idem.Message{
		Topic: "orders", Partition: 3, Offset: 17, Time: time.Now(), Key: []byte(secret()), Value: []byte(value),
		Headers: []idem.Header{
			{Key: "event-id", Value: []byte(id)}, {Key: "event-type", Value: []byte(typ)},
			{Key: "authorization", Value: []byte("Bearer " + secret())}, {Key: secret(), Value: []byte(secret())},
			{Key: "idem-error", Value: []byte(secret())}, {Key: "idem-" + secret(), Value: []byte(secret())},
		},
	}
}

func (h *house) processor(r *idem.Router, store dedup.Store) *idem.Processor {
	p, err := idem.NewProcessor(r, idem.Config{
		Store: store, Scope: "shop", Producer: h.deadLetters, Logger: h.log, Observers: h.observers, BusyWait: time.Second,
	})
	require.NoError(h.t, err)
	return p
}

// store is one in a real Postgres. Its tables are looked at, but not the events that wait in it,
// and not the answers of requests, which are kept for a replay.
func (h *house) store(t *testing.T) (*pgxpool.Pool, *pgstore.Store) {
	pool, err := pgxpool.New(t.Context(), testenv.Postgres(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	for _, table := range []string{"processed_events", "idempotency_keys", "event_starts", "idem_progress"} {
		h.watch(table, func() string { return dump(h.t, pool, "SELECT (to_jsonb(t) - 'result')::text FROM "+table+" t") })
	}
	return pool, pgstore.New(pool)
}

func dump(t testing.TB, pool *pgxpool.Pool, sql string) string {
	rows, err := pool.Query(context.Background(), sql)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return strings.Join(all, "\n")
}

var quickly = idem.RetryPolicy{MaxAttempts: 2, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond, InPlace: time.Minute}

// Values that cannot be decoded: no part of them is shown, for any error of the decoder.
func TestUndecodable_G04(t *testing.T) {
	h := newHouse(t)
	r := idem.NewRouter()
	idem.On(r, "order", func(context.Context, idem.Event[order]) error { return nil })
	store := memstore.New()
	p := h.processor(r, store)
	word := secret()
	values := []string{
		word, `"` + word + `"`, "[" + number + "]", `{"mail":` + number + `}`, `{"mail":` + word + `}`, `{"mail":"` + word, `{"` + word + `":}`,
		`{"amount":"` + word + `"}`, `{"amount":` + number + number + `}`, `{"amount":` + number + `.5}`, `{"at":"` + word + `"}`, `{"at":` + number + `}`,
		`{"from":"` + word + `"}`, `{"count":"` + word + `"}`, `{"count":` + number + `}`, `{"special":"` + word + `"}`, `{"special":{"` + word + `":1}}`,
		`{"amount":{"` + word + `":"` + word + `"}}`, "\x00" + word, `{"mail":"\u` + word + `"}`, "{\"mail\":\"\n" + word + `"}`,
	}
	for i, value := range values {
		require.NoError(t, p.Handle(t.Context(), h.record(fmt.Sprint("e", i), "order", value)))
	}
	require.NoError(t, p.Close())
	require.Equal(t, len(values), h.deadLetters.count())
	require.Equal(t, len(values), strings.Count(h.deadLetters.headers(), "idem-error-class: undecodable"))
	h.clean()
}

// Records without an identity, with several, and with types that no handler knows.
func TestIdentity_G04(t *testing.T) {
	h := newHouse(t)
	r := idem.NewRouter()
	idem.On(r, "order", func(context.Context, idem.Event[order]) error { return nil })
	p := h.processor(r, memstore.New())
	word := secret()
	value := `{"mail":"` + word + `"}`
	for _, headers := range [][]idem.Header{
		nil,
		{{Key: "event-type", Value: []byte("order")}},
		{{Key: "event-type", Value: []byte("order")}, {Key: "event-id", Value: []byte(word)}, {Key: "event-id", Value: []byte("other")}},
		{{Key: "event-type", Value: []byte(word)}, {Key: "event-type", Value: []byte("order")}, {Key: "event-id", Value: []byte("e")}},
		{{Key: "event-type", Value: []byte("order")}, {Key: "event-id", Value: []byte(strings.Repeat(word, 100))}},
		{{Key: "event-type", Value: []byte("order")}, {Key: "event-id", Value: []byte(word + "\x00")}},
		{{Key: "event-type", Value: []byte("order")}, {Key: "event-id", Value: []byte(word + "\xff")}},
	} {
		m := h.record("", "", value)
		m.Headers = headers
		require.NoError(t, p.Handle(t.Context(), m))
	}
	require.NoError(t, p.Close())
	require.Equal(t, 7, h.deadLetters.count())
	h.clean()
}

// failures are errors of handlers that others have put the data of the event into.
func failures(rdb *redis.Client, prefix string) map[string]func(ctx context.Context, tx pgx.Tx, o order) error {
	sql := func(text string) func(context.Context, pgx.Tx, order) error {
		return func(ctx context.Context, tx pgx.Tx, o order) error {
			_, err := tx.Exec(ctx, text, o.Mail)
			return err
		}
	}
	command := func(args ...any) func(context.Context, pgx.Tx, order) error {
		return func(ctx context.Context, _ pgx.Tx, o order) error {
			return rdb.Do(ctx, append(args, o.Mail)...).Err()
		}
	}
	plain := func(f func(o order) error) func(context.Context, pgx.Tx, order) error {
		return func(_ context.Context, _ pgx.Tx, o order) error { return f(o) }
	}
	return map[string]func(context.Context, pgx.Tx, order) error{
		"unique":      sql(`INSERT INTO people (mail) VALUES ($1), ($1)`),
		"not-null":    sql(`INSERT INTO people (mail, name) VALUES ($1, NULL)`),
		"check":       sql(`INSERT INTO people (mail, name) VALUES ($1, $1)`),
		"foreign-key": sql(`INSERT INTO orders (mail) VALUES ($1)`),
		"integer":     sql(`SELECT ($1::text)::integer`),
		"overflow":    sql(`SELECT ($1::text)::bigint`),
		"too-long":    sql(`INSERT INTO people (mail, short) VALUES ($1, $1)`),
		"date":        sql(`SELECT ($1::text)::timestamptz`),
		"uuid":        sql(`SELECT ($1::text)::uuid`),
		"json":        sql(`SELECT ($1::text)::jsonb`),
		"enum":        sql(`SELECT ($1::text)::mood`),
		"raise":       sql(`SELECT shout($1::text)`),
		"numeric":     sql(`SELECT 1 FROM (SELECT ($1::text || '.1')::numeric(3, 1)) t`),
		"at-commit":   sql(`INSERT INTO late (mail) VALUES ($1)`),
		"division":    sql(`SELECT 1 / (length($1::text) - length($1::text))`),
		"arguments": func(ctx context.Context, tx pgx.Tx, o order) error {
			_, err := tx.Exec(ctx, `SELECT $1::integer`, o.Mail)
			return err
		},
		"interpolated": func(ctx context.Context, tx pgx.Tx, o order) error {
			_, err := tx.Exec(ctx, `SELECT '`+o.Mail+`'::integer`)
			return err
		},
		"scan": func(ctx context.Context, tx pgx.Tx, o order) error {
			var n int
			return tx.QueryRow(ctx, `SELECT $1::text`, o.Mail).Scan(&n)
		},
		"redis-unknown": command("NOSUCHCOMMAND"),
		"redis-type":    command("INCRBY", prefix+"n"),
		"redis-script":  command("EVAL", `return redis.error_reply('no ' .. ARGV[1])`, 0),
		"redis-lua":     command("EVAL", `error(ARGV[1])`, 0),
		"atoi":          plain(func(o order) error { _, err := strconv.Atoi(o.Mail); return err }),
		"time":          plain(func(o order) error { _, err := time.Parse(time.RFC3339, o.Mail); return err }),
		"duration":      plain(func(o order) error { _, err := time.ParseDuration(o.Mail); return err }),
		"json-inside":   plain(func(o order) error { return json.Unmarshal([]byte(`{"amount":"`+o.Mail+`"}`), &o) }),
		"url":           plain(func(o order) error { _, err := url.Parse("http://h:" + o.Mail); return err }),
		"http": func(ctx context.Context, _ pgx.Tx, o order) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:1/mails/"+o.Mail+"?to="+o.Mail, nil)
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			return err
		},
		"panic":       plain(func(o order) error { panic(o) }),
		"panic-error": plain(func(o order) error { _, err := strconv.Atoi(o.Mail); panic(err) }),
	}
}

const tables = `
CREATE TYPE mood AS ENUM ('glad');
CREATE TABLE people (mail text PRIMARY KEY, name text NOT NULL DEFAULT 'x' CHECK (length(name) < 3), short varchar(3));
CREATE TABLE orders (mail text REFERENCES people);
CREATE FUNCTION shout(t text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'no %', t USING DETAIL = t, HINT = t, ERRCODE = 'unique_violation'; END $$;
CREATE TABLE late (mail text);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM shout(NEW.mail); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse();`

// ways in which handlers return an error, or make one of it.
var ways = map[string]func(error) error{
	"wrapped":     func(err error) error { return fmt.Errorf("order declined: %w", err) },
	"permanent":   func(err error) error { return idem.Permanent(fmt.Errorf("order declined: %w", err)) },
	"not-applied": func(err error) error { return fmt.Errorf("again: %w", idem.NotApplied(err)) },
	"joined":      func(err error) error { return errors.Join(errors.New("order declined"), err, err) },
	"as-text":     func(err error) error { return errors.New("order declined: " + err.Error()) },
}

// Handlers fail with the errors of Postgres, Redis, decoders and clients about their data. The
// handlers are claimed and transactional, with dead letters, retry topics and events that wait in
// the store.
func TestFailures_G04(t *testing.T) {
	h := newHouse(t)
	pool, store := h.store(t)
	_, err := pool.Exec(t.Context(), tables)
	require.NoError(t, err)
	rdb, prefix := testenv.Redis(t)
	r := idem.NewRouter()
	var types []string
	for name, fail := range failures(rdb, prefix) {
		for way, wrap := range ways {
			if (name == "raise" || name == "at-commit") && way == "as-text" {
				continue // an error text of the database can no longer be told from the handler's
			}
			if strings.HasPrefix(name, "redis-") && way == "as-text" && name != "redis-unknown" {
				continue // a script's own words
			}
			register(r, name+"."+way, pool, fail, wrap)
			types = append(types, name+"."+way)
		}
	}
	p := h.processor(r, store)
	for _, typ := range types {
		for _, how := range []string{".claimed", ".tx", ".later", ".deferred"} {
			if (how == ".later" || how == ".deferred") && !strings.HasSuffix(typ, ".wrapped") {
				continue
			}
			m := h.record("e1", typ+how, `{"mail":"`+secret()+`"}`)
			if strings.HasPrefix(typ, "overflow") {
				m.Value = []byte(`{"mail":"` + number + number + `"}`)
			}
			require.NoError(t, p.Handle(t.Context(), m), typ+how)
		}
	}
	require.NoError(t, p.Close())
	require.Contains(t, h.deadLetters.headers(), "order declined", "the handler's own words stay")
	require.Contains(t, h.deadLetters.headers(), `constraint "people_pkey"`)
	require.Contains(t, dump(t, pool, "SELECT coalesce(reason, '') FROM processed_events"), "SQLSTATE 23505")
	h.clean()
}

func register(r *idem.Router, typ string, pool *pgxpool.Pool, fail func(context.Context, pgx.Tx, order) error, wrap func(error) error) {
	claimed := func(ctx context.Context, e idem.Event[order]) error {
		return wrap(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return fail(ctx, tx, e.Data) }))
	}
	idem.On(r, typ+".claimed", claimed, idem.Retry(quickly))
	idem.On(r, typ+".later", claimed, idem.Retry(quickly), idem.RetryTopics(time.Hour))
	idem.On(r, typ+".deferred", claimed, idem.Retry(quickly), idem.KeyOrdered(time.Hour))
	idem.OnTx(r, typ+".tx", func(ctx context.Context, tx pgx.Tx, e idem.Event[order]) error {
		return wrap(fail(ctx, tx, e.Data))
	}, idem.Retry(quickly))
}

// A planted secret is found in each way out, in each form.
func TestControl(t *testing.T) {
	h := newHouse(t)
	pool, store := h.store(t)
	r := idem.NewRouter()
	tell := func(ctx context.Context, e idem.Event[order]) error {
		h.log.DebugContext(ctx, "the handler's own line", "mail", e.Data.Mail)
		return idem.Permanent(errors.New("no mail for " + e.Data.Mail)) // its own words, which stay
	}
	idem.On(r, "claimed", tell)
	idem.OnTx(r, "tx", func(ctx context.Context, _ pgx.Tx, e idem.Event[order]) error { return tell(ctx, e) })
	p := h.processor(r, store)
	for _, typ := range []string{"claimed", "tx"} {
		require.NoError(t, p.Handle(t.Context(), h.record("e1", typ, `{"mail":"`+secret()+`"}`)))
	}
	require.NoError(t, p.Close())
	_ = pool
	found := strings.Join(h.found(), "\n")
	for _, name := range []string{"log: ", "headers of dead letters: ", "processed_events: ", "idempotency_keys: "} {
		require.Contains(t, found, name)
	}

	for _, text := range []string{
		secret(), "x" + secret()[:11], strings.ToUpper(secret()), fmt.Sprintf("%d", []byte(secret())), hex.EncodeToString([]byte(secret())), number[:12],
		base64.StdEncoding.EncodeToString([]byte(secret())), base64.URLEncoding.EncodeToString([]byte(`{"mail":"` + secret())),
		base64.StdEncoding.EncodeToString([]byte("xy" + secret())),
	} {
		h := newHouse(t)
		h.log.Info("x", "y", text)
		require.NotEmpty(t, h.found(), text)
	}
}
