package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/internal/doctor"
	"github.com/idem-go/idem/internal/outboxview"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

var _ outbox.Producer = (*consumer.Producer)(nil)

// testOutbox is an outbox on the real Postgres.
type testOutbox struct {
	*testing.T
	url  string
	pool *pgxpool.Pool
	box  *pgoutbox.Outbox
}

func newTestOutbox(t *testing.T) *testOutbox {
	t.Helper()
	o := &testOutbox{T: t, url: testenv.Postgres(t)}
	command(t, "migrate", "up", "--outbox", "--store", o.url).ok(t)
	pool, err := pgxpool.New(t.Context(), o.url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	o.pool, o.box = pool, pgoutbox.New(pool, pgoutbox.MaxBytes(16<<20))
	return o
}

func (o *testOutbox) add(entries ...outbox.Entry) {
	o.Helper()
	require.NoError(o, pgx.BeginFunc(o.Context(), o.pool, func(tx pgx.Tx) error { return o.box.Add(o.Context(), tx, entries...) }))
}

// park parks rows as a relay does, by event ID, and blocks others.
func (o *testOutbox) park(id, reason string, behind ...string) int64 {
	o.Helper()
	ctx := o.Context()
	held, err := o.box.Hold(ctx, "test", time.Minute, true)
	require.NoError(o, err)
	rows, err := o.box.Fetch(ctx, outbox.Fetch{Shards: held, Limit: 10_000, Bytes: 1 << 30})
	require.NoError(o, err)
	found := map[string]outbox.RowID{}
	for i := range rows {
		found[rows[i].Entry.ID] = rows[i].RowID()
	}
	s := outbox.Settlement{Parked: map[outbox.RowID]string{found[id]: reason}}
	for _, b := range behind {
		s.Blocked = append(s.Blocked, found[b])
	}
	lost, err := o.box.Settle(ctx, "test", held, s)
	require.NoError(o, err)
	require.Empty(o, lost)
	require.NoError(o, o.box.Leave(ctx, "test"))
	return found[id].Seq
}

func (o *testOutbox) backlog() outbox.Backlog {
	o.Helper()
	b, err := o.box.Backlog(o.Context(), outboxview.Limit)
	require.NoError(o, err)
	return b
}

func event(topic, key, id string) outbox.Entry {
	return outbox.Entry{Topic: topic, Key: key, Type: "order.paid", ID: id, Payload: []byte(`{"n":"` + id + `"}`)}
}

// Impossible flags are refused before any question.
func TestOutboxUsage(t *testing.T) {
	for args, says := range map[string]string{
		"outbox":                               "",
		"outbox statsu":                        `no command "statsu"`,
		"outbox status":                        "--outbox",
		"outbox status --store redis://h/0":    "--outbox",
		"outbox status --outbox redis://h/0":   "postgres://",
		"outbox status --outbox canary":        "postgres://",
		"outbox status x --outbox postgres://": "no arguments",
		"outbox parked --limit 0":              "--limit",
		"outbox retry":                         "SEQ",
		"outbox retry 1 x":                     "SEQ",
		"outbox skip -1":                       "",
		"outbox skip 0":                        "SEQ",
		"outbox skip 7: --outbox postgres://":  "SEQ:EVENT",
		"outbox skip :a --outbox postgres://":  "SEQ:EVENT",
		"outbox status --store postgres://a/b --store postgres://c/d":        "--outbox",
		"outbox status --outbox postgres://u:canary@h:port/db":               "cannot be parsed",
		"migrate print --outbox --layout compact":                            "--layout",
		"migrate up --outbox postgres://h/db":                                "a database is named by --store",
		"relay --outbox postgres://h/db":                                     "--brokers",
		"relay --brokers h:1":                                                "--outbox",
		"relay --brokers h:1 --outbox postgres://h/db --batch 0":             "--batch",
		"relay --brokers h:1 --outbox postgres://h/db --batch 10001":         "--batch",
		"relay --brokers h:1 --outbox postgres://h/db --batch-bytes -1":      "--batch-bytes",
		"relay --brokers h:1 --outbox postgres://h/db --interval 0s":         "--interval",
		"relay --brokers h:1 --outbox postgres://h/db --setup-wait 0s":       "--setup-wait",
		"relay --brokers h:1 --outbox postgres://h/db --lease 10ms":          "--lease",
		"relay --brokers h:1 --outbox postgres://h/db --max-attempts 0":      "--max-attempts",
		"relay --brokers h:1 --outbox postgres://h/db --keep -1s":            "--keep",
		"relay --brokers h:1 --outbox postgres://h/db --when-parked explode": "halt or skip",
		"relay --brokers h:1 --outbox postgres://h/db --schema x;y":          "--schema",
		"relay --brokers h:1 --outbox postgres://h/db -o yaml":               "table or json",
		"relay --brokers h:1 --outbox postgres://h/db --tls-cert x":          "--tls-key",
	} {
		r := command(t, strings.Fields(args)...)
		require.Equal(t, exitUsage, r.code, "%q: %s", args, r.stderr)
		require.Contains(t, r.stderr, says, args)
		require.NotContains(t, r.stderr, "canary")
		require.Empty(t, r.audits(t), args)
	}
}

// The start of a relay, and the questions of a person, fail within seconds with a remedy in the
// text.
func TestOutboxAway(t *testing.T) {
	away := "postgres://idem:idem@" + testenv.FreeAddr(t) + "/idem"
	for _, args := range []string{"outbox status", "outbox parked", "outbox retry 1 -y", "migrate up --outbox", "relay --brokers h:1"} {
		r := command(t, append(strings.Fields(args), "--store", away)...)
		r.failed(t, exitFailure, "connect")
		require.NotContains(t, r.stderr, "idem:idem")
	}
	r := command(t, "migrate", "status", "--outbox", "--store", away, "-o", "json")
	r.failed(t, exitFailure)
	var all []tablesView
	r.json(t, &all)
	require.Equal(t, "unavailable", all[0].State)
}

// The tables are made and looked at, whichever way the database is named.
func TestMigrateOutbox(t *testing.T) {
	require.Equal(t, pgoutbox.Schema(), command(t, "migrate", "print", "--outbox").ok(t))
	url := testenv.Postgres(t)
	r := command(t, "migrate", "status", "--outbox", "--store", url, "-o", "json")
	r.failed(t, exitFound, "must not be used")
	var all []tablesView
	r.json(t, &all)
	require.Equal(t, "missing", all[0].State)
	for _, args := range []string{"outbox status", "outbox parked", "relay --brokers h:1"} {
		command(t, append(strings.Fields(args), "--outbox", url)...).failed(t, exitFailure, "idem migrate up --outbox")
	}
	r = command(t, "migrate", "up", "--outbox", "--store", url)
	r.ok(t)
	require.InDelta(t, 0, r.audits(t)[0]["version_before"], 0)
	t.Setenv("IDEM_OUTBOX", url)
	command(t, "migrate", "up", "--outbox").ok(t)
	command(t, "migrate", "status", "--outbox", "-o", "json").json(t, &all)
	require.Equal(t, "ok", all[0].State, "%+v", all)
	require.Equal(t, schemaIn(t, url), all[0].Schema)
	require.Equal(t, layoutOutbox, all[0].Layout)
	command(t, "outbox", "status").ok(t)
	t.Setenv("IDEM_OUTBOX", "postgres://idem:idem@"+testenv.FreeAddr(t)+"/idem")
	command(t, "outbox", "status").failed(t, exitFailure)
	command(t, "outbox", "status", "--store", url).ok(t)
	execSQL(t, connect(t, url), "DROP TABLE idem_outbox_relays")
	command(t, "migrate", "status", "--outbox", "--store", url, "-o", "json").json(t, &all)
	require.Equal(t, "unfit", all[0].State)
	require.Contains(t, all[0].Problem, "idem_outbox_relays")
}

// A database that does not answer the check in time is away, and the outbox is not unfit.
func TestMigrateOutboxStatus_Unavailable(t *testing.T) {
	o := newTestOutbox(t)
	tx, err := o.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), "LOCK TABLE idem_outbox_shards IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	r := command(t, "migrate", "status", "--outbox", "--store", o.url+"&lock_timeout=100", "-o", "json")
	r.failed(t, exitFailure, "not to be used now")
	var all []tablesView
	r.json(t, &all)
	require.Equal(t, "unavailable", all[0].State)
	require.NotZero(t, all[0].Version)
	require.NoError(t, tx.Rollback(t.Context()))
	command(t, "migrate", "status", "--outbox", "--store", o.url).ok(t)
}

// Status shows the backlog and the relays.
func TestOutboxStatus(t *testing.T) {
	o := newTestOutbox(t)
	o.add(event("orders", "1", "a"), event("orders", "2", "b"))
	o.add(event("orders", "1", "c"))
	o.park("a", "too large", "c")
	_, err := o.box.Hold(t.Context(), "relay-1", time.Minute, true)
	require.NoError(t, err)
	_, err = o.box.Hold(t.Context(), "relay-2", time.Minute, true)
	require.NoError(t, err)
	_, err = o.box.Hold(t.Context(), "relay-1", time.Minute, true) // gives half of them up
	require.NoError(t, err)
	var v outboxView
	command(t, "outbox", "status", "--outbox", o.url, "-o", "json").json(t, &v)
	require.Equal(t, []int64{1, 1, 1}, []int64{v.Waiting, v.Parked, v.Blocked})
	require.Positive(t, v.Oldest)
	shards := map[string]int{}
	for _, r := range v.Relays {
		shards[r.Relay] = len(r.Shards)
		require.Len(t, r.Epochs, len(r.Shards))
		if r.Relay != "" {
			require.True(t, r.Alive)
		}
		if r.Relay == "relay-1" {
			require.InDelta(t, 60, *r.LeaseLeft, 30)
		}
	}
	require.Equal(t, map[string]int{"": 32, "relay-1": 32, "relay-2": 0}, shards)
	text := command(t, "outbox", "status", "--outbox", o.url).ok(t)
	for _, want := range []string{"waiting", "relay-1", "(no relay)", "left", "0-31"} {
		require.Contains(t, text, want)
	}
	require.Equal(t, "over for 3s", leaseText(new(-3.0)))
}

// Parked rows are listed without payload unless that is asked for, and their texts reach no
// terminal as a command (G-04).
func TestOutboxParked_O10_G04(t *testing.T) {
	o := newTestOutbox(t)
	e := event("orders", "\x1b]0;bad\a", "evil\x1b[2J")
	e.Payload, e.Type = []byte("canary"), "order\u202epaid"
	o.add(e, event("orders", "x", "y"))
	seq := o.park(e.ID, "no \x1b[31msuch thing")
	text := command(t, "outbox", "parked", "--outbox", o.url).ok(t)
	require.NotContains(t, text, "canary")
	require.NotContains(t, text, "\x1b")
	require.NotContains(t, text, "\u202e")
	require.Contains(t, text, fmt.Sprint(seq))
	text = command(t, "outbox", "parked", "--outbox", o.url, "--payload").ok(t)
	require.Contains(t, text, "canary")
	var all []parkedRowView
	command(t, "outbox", "parked", "--outbox", o.url, "-o", "json").json(t, &all)
	require.Len(t, all, 1)
	require.Nil(t, all[0].Payload)
	require.Equal(t, e.ID, all[0].ID)
	require.Equal(t, 6, all[0].Size)
	r := command(t, "outbox", "parked", "--outbox", o.url, "-o", "json", "--payload", "--limit", "1")
	r.json(t, &all)
	require.Equal(t, "canary", all[0].Payload.Text)
	require.Contains(t, r.stderr, "may be more")
}

// Retry and skip ask, are put on record, and change either all of the rows or no row.
func TestOutboxRetrySkip_O10(t *testing.T) {
	o := newTestOutbox(t)
	o.add(event("orders", "1", "a"), event("orders", "2", "b"))
	o.add(event("orders", "1", "c"), event("orders", "2", "d"))
	a := o.park("a", "too large", "c")
	b := o.park("b", "too large", "d")
	require.Equal(t, []int64{0, 2, 2}, []int64{o.backlog().Waiting, o.backlog().Parked, o.backlog().Blocked})
	seqs := []string{fmt.Sprint(a), fmt.Sprint(b)}

	r := command(t, "outbox", "skip", seqs[0], "--outbox", o.url)
	r.failed(t, exitFound, "not confirmed", `event "a"`, "no consumer will get")
	require.Equal(t, "refused", r.audits(t)[0]["outcome"])
	r = command(t, "outbox", "retry", seqs[0], "999999", "--outbox", o.url, "-y")
	r.failed(t, exitFound, "999999", "no row was changed")
	require.Equal(t, "refused", r.audits(t)[0]["outcome"])
	require.EqualValues(t, 2, o.backlog().Parked)

	r = command(t, "outbox", "retry", seqs[0], seqs[0], "--outbox", o.url, "-y", "--reason", "the limit was raised")
	r.ok(t)
	line := r.audits(t)[0]
	require.Equal(t, "outbox retry", line["audit"])
	require.Equal(t, "done", line["outcome"])
	require.Equal(t, []any{"a"}, line["event_ids"])
	require.Equal(t, []any{float64(a)}, line["acted"])
	require.Equal(t, "the limit was raised", line["reason"])
	require.Equal(t, []int64{2, 1, 1}, []int64{o.backlog().Waiting, o.backlog().Parked, o.backlog().Blocked})

	r = commandWith(t, nil, "y\n", "outbox", "skip", seqs[1], "--outbox", o.url)
	r.ok(t)
	require.Contains(t, r.stdout, "dropped")
	require.Equal(t, []int64{3, 0, 0}, []int64{o.backlog().Waiting, o.backlog().Parked, o.backlog().Blocked})
	command(t, "outbox", "skip", seqs[1], "--outbox", o.url, "-y").failed(t, exitFound, "not parked")
}

// A row that is named with its event ID is changed only if it has that event: a fail-over may have
// given the number to another one (O-16). Dry runs and changes name the event.
func TestOutboxRetrySkip_AnotherEvent_O16(t *testing.T) {
	o := newTestOutbox(t)
	o.add(event("orders", "1", "a:1"), event("orders", "2", "b"))
	a, b := o.park("a:1", "too large"), o.park("b", "too large")
	for _, verb := range []string{"retry", "skip"} {
		r := command(t, "outbox", verb, fmt.Sprint(a), fmt.Sprintf("%d:lost", b), "--outbox", o.url, "-y")
		r.failed(t, exitFound, fmt.Sprintf(`%d is event "b", not "lost"`, b), "no row was changed")
		require.Equal(t, "refused", r.audits(t)[0]["outcome"])
		require.EqualValues(t, 2, o.backlog().Parked)
	}
	var result outboxResult
	r := command(t, "outbox", "skip", fmt.Sprintf("%d:a:1", a), fmt.Sprint(b), "--outbox", o.url, "-o", "json", "-y")
	r.json(t, &result)
	require.Equal(t, []string{"a:1", "b"}, result.EventIDs)
	require.Equal(t, []any{"a:1", "b"}, r.audits(t)[0]["event_ids"])
	require.Zero(t, o.backlog().Parked)
}

// The rows of a command are those of its arguments, each once, by number.
func TestParseRows(t *testing.T) {
	rows, err := parseRows([]string{"8:b:c", "7", "8:b:c", "7"})
	require.NoError(t, err)
	require.Equal(t, []outbox.RowID{{Seq: 7}, {Seq: 8, EventID: "b:c"}}, rows)
	require.Equal(t, []int64{7, 8}, seqsOf(rows))
	parked := []parkedName{{seq: 7, id: "a"}, {seq: 8, id: "b:c"}}
	require.NoError(t, allParked(rows, parked))
	require.EqualError(t, allParked(append(rows, outbox.RowID{Seq: 9}), []parkedName{{seq: 7, id: "a"}, {seq: 8, id: "b"}}),
		`not parked: 9; another event: 8 is event "b", not "b:c"; no row was changed`)
}

// A row whose call failed is put on record as unknown: the commit may have happened. Rows that were
// finished, and rows of others, are not unknown. Each call has a limit of its own.
func TestOutboxEach_UnknownOutcome_O10(t *testing.T) {
	for name, c := range map[string]struct {
		fails   error
		unknown any
		says    string
	}{
		"no answer":     {io.ErrUnexpectedEOF, int64(8), "row 8 may have been changed"},
		"not parked":    {pgoutbox.ErrNotParked, nil, `event "b" in row 8 is no longer parked`},
		"all went well": {nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			do := func(_ *pgoutbox.Outbox, ctx context.Context, row outbox.RowID) error {
				_, bounded := ctx.Deadline()
				require.True(t, bounded)
				require.Equal(t, map[int64]string{7: "a", 8: "b"}[row.Seq], row.EventID)
				if row.Seq == 8 {
					return c.fails
				}
				return nil
			}
			fields := map[string]any{}
			b, names := &openedOutbox{name: "shop"}, []parkedName{{seq: 7, id: "a"}, {seq: 8, id: "b"}}
			err := b.each(t.Context(), &outboxVerb{name: "skip", do: do}, names, fields)
			require.Equal(t, c.unknown, fields["unknown"])
			if c.fails == nil {
				require.NoError(t, err)
				require.Equal(t, []int64{7, 8}, fields["acted"])
				return
			}
			require.ErrorContains(t, err, c.says)
			require.Equal(t, []int64{7}, fields["acted"])
			if c.unknown != nil {
				require.ErrorIs(t, err, c.fails)
			}
		})
	}
}

// The doctor looks at an outbox where there is one.
func TestDoctor_Outbox_O10_O15(t *testing.T) {
	p := newPgSchema(t)
	verdicts := func() map[string]doctor.Verdict {
		all := map[string]doctor.Verdict{}
		for _, f := range examined(t, p.base()...) {
			if strings.HasPrefix(f.ID, "outbox.") {
				require.NotEmpty(t, f.Title, f.ID)
				all[f.ID] = f.Verdict
			}
		}
		return all
	}
	require.Empty(t, verdicts())
	command(t, "migrate", "up", "--outbox", "--store", p.url).ok(t)
	fine := map[string]doctor.Verdict{"outbox.tables": doctor.OK, "outbox.parked": doctor.OK, "outbox.oldest": doctor.OK, "outbox.relay": doctor.Warn}
	require.Equal(t, fine, verdicts(), "nobody publishes")
	pool, err := pgxpool.New(t.Context(), p.url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	o := &testOutbox{T: t, url: p.url, pool: pool, box: pgoutbox.New(pool)}
	o.add(event("orders", "1", "a"))
	o.add(event("orders", "2", "b"))
	o.park("a", "too large")
	_, err = o.box.Hold(context.Background(), "relay", time.Minute, true)
	require.NoError(t, err)
	fine["outbox.relay"], fine["outbox.parked"] = doctor.OK, doctor.Warn
	require.Equal(t, fine, verdicts())
	p.exec(p.url, "UPDATE idem_outbox SET added_at = added_at - interval '2 min'")
	fine["outbox.oldest"] = doctor.Warn
	require.Equal(t, fine, verdicts())
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), "LOCK TABLE idem_outbox_shards IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	usual := p.url
	p.url = p.with("lock_timeout", "100")
	require.Equal(t, map[string]doctor.Verdict{"outbox.tables": doctor.Unknown}, verdicts(), "no answer is no fault")
	require.NoError(t, tx.Rollback(t.Context()))
	p.url = usual
	p.exec(p.url, "DROP TABLE idem_outbox_shards")
	require.Equal(t, map[string]doctor.Verdict{"outbox.tables": doctor.Bad}, verdicts())
}
