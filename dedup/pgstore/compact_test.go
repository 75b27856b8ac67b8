package pgstore_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// uuids returns n requests with time-ordered UUIDs, ascending, that no other batch has.
func uuids(n, number int) []dedup.Request {
	reqs := batch(n, number)
	for i := range reqs {
		var u [16]byte
		binary.BigEndian.PutUint64(u[:], uint64(1_700_000_000_000+number*n+i)<<16|0x7000)
		sum := sha256.Sum256(u[:8])
		copy(u[8:], sum[:])
		u[8] = u[8]&0x3f | 0x80
		h := hex.EncodeToString(u[:])
		reqs[i].Key.ID = h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
		reqs[i].Origin.Offset = int64(number*n + i)
	}
	return reqs
}

// A store and its tables must agree about the layout, from the first call on (rule 28).
func TestLayoutsDoNotMix_Rule28(t *testing.T) {
	for name, c := range map[string]struct {
		tables, store []pgstore.Option
		fix           string
	}{
		"compact tables":  {[]pgstore.Option{pgstore.Compact()}, nil, "give pgstore.Compact"},
		"readable tables": {nil, []pgstore.Option{pgstore.Compact()}, "leave pgstore.Compact away"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, newTables(t, c.tables...))
			named := pgstore.InSchema(pool.Config().ConnConfig.RuntimeParams["search_path"])
			for _, opts := range [][]pgstore.Option{c.store, append([]pgstore.Option{named}, c.store...)} {
				s := pgstore.New(pool, opts...)
				answers := make([]dedup.Answer, 1)
				reqs := []dedup.Request{request("a")}
				err := s.Claim(t.Context(), dedup.NewToken(), time.Minute, reqs, answers)
				require.ErrorContains(t, err, c.fix)
				require.ErrorIs(t, err, dedup.ErrUnavailable, "nothing is run, and no event is given up for it")
				err = s.ClaimTx(t.Context(), time.Minute, reqs, answers, func(pgx.Tx) ([]dedup.Completion, error) {
					t.Error("ran")
					return nil, nil
				})
				require.ErrorContains(t, err, c.fix)
				_, err = s.Check(t.Context())
				require.ErrorContains(t, err, c.fix)
				require.NotErrorIs(t, err, dedup.ErrUnavailable, "waiting does not help")
				require.ErrorContains(t, pgstore.Migrate(t.Context(), pool, opts...), c.fix)
			}
			right := pgstore.New(pool, c.tables...)
			_, err := right.Check(t.Context())
			require.NoError(t, err)
			require.NoError(t, pgstore.Migrate(t.Context(), pool, c.tables...))
		})
	}
}

// Tables from before there were two layouts have the readable one, and Migrate records that layout.
func TestLayoutOfOlderTables_Rule28(t *testing.T) {
	t.Parallel()
	pool := newPool(t, newTables(t))
	_, err := pool.Exec(t.Context(), "ALTER TABLE idem_schema DROP COLUMN layout")
	require.NoError(t, err)
	require.ErrorContains(t, pgstore.Migrate(t.Context(), pool, pgstore.Compact()), "readable layout")
	_, err = pgstore.New(pool).Check(t.Context())
	require.NoError(t, err)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	var layout string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT layout FROM idem_schema").Scan(&layout))
	require.Equal(t, "readable", layout)
}

func TestCheckFindsCompactTablesWithoutTheirKey_P25(t *testing.T) {
	for _, table := range []string{"processed_events_compact", "idempotency_keys_compact", "idem_kinds", "idem_origins"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			s, pool := newCompactStore(t)
			key := table + "_pkey"
			if table == "idem_kinds" || table == "idem_origins" {
				key = table + "_key"
			}
			_, err := pool.Exec(t.Context(), "ALTER TABLE "+table+" DROP CONSTRAINT "+key)
			require.NoError(t, err)
			_, err = s.Check(t.Context())
			require.ErrorContains(t, err, table+" has no valid unique key")
		})
	}
}

// Rule 28: bytes are kept raw only if they give back the same text; every other spelling is an event of its own.
func TestCompactSpellings_Rule28(t *testing.T) {
	t.Parallel()
	s, pool := newCompactStore(t)
	ids := []string{
		"0190F3B4-5C2A-7ABC-8DEF-0123456789AB", "0190f3b4-5c2a-7abc-8def-0123456789ab",
		"0190f3b45c2a7abc8def0123456789ab", "01J3SV8Q1AFAY8VVR14D2PF2DB", "01j3sv8q1afay8vvr14d2pf2db",
		"81J3SV8Q1AFAY8VVR14D2PF2DB", "order-12345", "urn:uuid:0190f3b4-5c2a-7abc-8def-0123456789ab",
		"{0190f3b4-5c2a-7abc-8def-0123456789ab}",
	}
	for _, id := range ids {
		answers := make([]dedup.Answer, 1)
		for _, want := range []dedup.Verdict{dedup.Fresh, dedup.Done} {
			require.NoError(t, s.ClaimTx(t.Context(), time.Minute, []dedup.Request{request(id)}, answers, plain))
			require.Equal(t, want, answers[0].Verdict, "%q", id)
		}
	}
	rows, err := pool.Query(t.Context(), "SELECT event_id FROM processed_events_read WHERE event_id IS NOT NULL ORDER BY 1")
	require.NoError(t, err)
	shown, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{ids[1], ids[3]}, shown, "a UUID and a ULID are shown as they are")
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM processed_events_read WHERE scope = 'orders'
		AND id = left(encode(sha256(convert_to('order-12345', 'UTF8')), 'hex'), 32)::uuid`).Scan(&n))
	require.Equal(t, 1, n, "the documented way to find an event by its ID")

	// An ID with raw bytes that equal the hash of another ID is another event: the form is part of
	// the kind.
	sum := sha256.Sum256([]byte("order-12345"))
	h := hex.EncodeToString(sum[:16])
	forged := h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
	answers := make([]dedup.Answer, 1)
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, []dedup.Request{request(forged)}, answers, plain))
	require.Equal(t, dedup.Fresh, answers[0].Verdict)
}

// Rule 28: a number of the dictionary that a handler's transaction uses survives its rollback.
func TestCompactNumbersOutliveARollback_Rule28(t *testing.T) {
	t.Parallel()
	s, pool := newCompactStore(t, maxConns(1)) // also: numbers need no second connection
	answers := make([]dedup.Answer, 1)
	boom := fmt.Errorf("boom")
	err := s.ClaimTx(t.Context(), time.Minute, []dedup.Request{request("a")}, answers,
		func(pgx.Tx) ([]dedup.Completion, error) { return nil, boom })
	require.ErrorIs(t, err, boom)
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, []dedup.Request{request("a")}, answers, plain))
	other := pgstore.New(pool, pgstore.Compact())
	require.NoError(t, other.ClaimTx(t.Context(), time.Minute, []dedup.Request{request("a")}, answers, plain))
	require.Equal(t, dedup.Done, answers[0].Verdict)
	require.Equal(t, "payments", answers[0].First.Topic)
	require.EqualValues(t, 3, answers[0].First.Partition)
}

// The compact layout takes at most 130 bytes for an event that is done, with its indexes and its
// origin. A checksum of its value adds no bytes there, and 8 bytes at most in the readable layout.
func TestBytesPerEvent(t *testing.T) {
	for name, c := range map[string]struct {
		opts  []pgstore.Option
		table string
		most  float64
		check float64
	}{
		"compact":  {[]pgstore.Option{pgstore.Compact()}, "processed_events_compact", 130, 0.5},
		"readable": {nil, "processed_events", 330, 8.5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with, without := bytesPerEvent(t, c.table, true, c.opts...), bytesPerEvent(t, c.table, false, c.opts...)
			t.Logf("%.1f bytes per event, %.1f without a checksum", with, without)
			require.LessOrEqual(t, with, c.most)
			require.LessOrEqual(t, with-without, c.check)
		})
	}
}

func bytesPerEvent(t *testing.T, table string, check bool, opts ...pgstore.Option) float64 {
	pool := newPool(t, unusedTables(t, opts...), param("synchronous_commit", "off"))
	s := pgstore.New(pool, opts...)
	const n, batches = 500, 100
	answers := make([]dedup.Answer, n)
	for i := range batches {
		reqs := uuids(n, i)
		for j := range reqs { // as polls have them: from many partitions
			reqs[j].Origin.Partition = int32(j % 12)
			reqs[j].Retention = time.Hour + time.Duration(i)*time.Second
			if check {
				reqs[j].Fingerprint = dedup.Checksum([]byte(reqs[j].Key.ID))
			}
		}
		require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers, plain))
	}
	var rows, size int64
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM "+table+"), pg_total_relation_size($1)", table).
		Scan(&rows, &size))
	require.EqualValues(t, n*batches, rows)
	return float64(size) / float64(rows)
}

// Rows of the compact layout keep the same values as readable rows: a duplicate gets the same
// answer.
func TestCompactKeepsResults(t *testing.T) {
	t.Parallel()
	s, _ := newCompactStore(t)
	data := bytes.Repeat([]byte{0, 0xff, 'x'}, 10_000)
	answers := make([]dedup.Answer, 1)
	r := request("a")
	err := s.ClaimTx(t.Context(), time.Minute, []dedup.Request{r}, answers, func(pgx.Tx) ([]dedup.Completion, error) {
		return []dedup.Completion{{Claim: dedup.Claim{Key: r.Key}, Retention: retention,
			Result: dedup.Result{Schema: 7, Data: data}}}, nil
	})
	require.NoError(t, err)
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, []dedup.Request{r}, answers, plain))
	require.Equal(t, dedup.Result{Schema: 7, Data: data}, answers[0].Result)
}

// BenchmarkLayouts runs each batch in both layouts, in turns, which a noisy machine moves little.
func BenchmarkLayouts(b *testing.B) {
	const n = 512
	open, _ := newStore(b)
	small, _ := newCompactStore(b)
	answers := make([]dedup.Answer, n)
	var took [2]time.Duration
	number := 0
	for b.Loop() {
		number++
		reqs := uuids(n, number)
		for i, s := range []*pgstore.Store{open, small} {
			began := time.Now()
			require.NoError(b, s.ClaimTx(b.Context(), time.Minute, reqs, answers, plain))
			took[i] += time.Since(began)
		}
	}
	rate := func(d time.Duration) float64 { return float64(b.N*n) / d.Seconds() }
	b.ReportMetric(rate(took[0]), "readable-events/s")
	b.ReportMetric(rate(took[1]), "compact-events/s")
	b.ReportMetric(rate(took[1])/rate(took[0]), "compact/readable")
}

// Rule 35: a compact record of a later release, or of an unknown status, is not guessed at.
func TestCompactRecordsOfLaterReleases_Rule35(t *testing.T) {
	t.Parallel()
	s, pool := newCompactStore(t)
	answers := make([]dedup.Answer, 1)
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, []dedup.Request{request("a")}, answers, plain))
	for _, rest := range []string{`{"record_version": 2}`, `{"status": "later"}`} {
		_, err := pool.Exec(t.Context(), "UPDATE processed_events_compact SET rest = $1", rest)
		require.NoError(t, err)
		err = s.ClaimTx(t.Context(), time.Minute, []dedup.Request{request("a")}, answers, plain)
		require.ErrorIs(t, err, dedup.ErrUnavailable, rest)
		require.Zero(t, answers[0])
	}
	_, err := pool.Exec(t.Context(), `UPDATE processed_events_compact SET rest = '{"status": "dead", "record_version": 2}'`)
	require.NoError(t, err)
	_, err = s.Reopen(t.Context(), request("a").Key)
	require.ErrorIs(t, err, dedup.ErrNotDead)
}
