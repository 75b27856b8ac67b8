package reaptest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// progressRow is a row of idem_progress with the age of its time.
type progressRow struct {
	topic     string
	partition int32
	next      int64
	known     bool
	age       time.Duration
}

func (s Site) progressOf(t testing.TB, scope string) (all []progressRow) {
	t.Helper()
	d := s.Dialect()
	rows, err := s.DB.QueryContext(t.Context(), s.placed("SELECT topic, "+
		d.Quote+"partition"+d.Quote+", next_offset, "+
		d.Micros("consumed_until")+" FROM idem_progress WHERE scope = ¿ ORDER BY 1, 2"), scope)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var r progressRow
		var until *int64
		require.NoError(t, rows.Scan(&r.topic, &r.partition, &r.next, &until))
		if until != nil {
			r.known, r.age = true, time.Since(time.UnixMicro(*until))
		}
		all = append(all, r)
	}
	require.NoError(t, rows.Err())
	return all
}

// progress: the times of records come from the broker, and the present comes from the database. The
// clock of a producer moves neither (rule 8).
func progress(t *testing.T, site Site) {
	s := site.store(t)
	record(t, s, "g")
	require.Empty(t, site.progressOf(t, "g"))
	record(t, s, "g",
		dedup.Progress{Topic: "b", Partition: 0, Next: 1, Time: ago(time.Hour)},
		dedup.Progress{Topic: "a", Partition: 2, Next: 5, CaughtUp: true},
		dedup.Progress{Topic: "a", Partition: 1, Next: 4, Time: ago(-day)}, // a producer's clock is wrong
		dedup.Progress{Topic: "a", Partition: 0, Next: 3},                  // not known
		dedup.Progress{Topic: "b", Partition: 0, Next: 2, Time: ago(2 * time.Hour)},
		dedup.Progress{Topic: "c", Next: 7, Time: time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC)})
	record(t, s, "other", dedup.Progress{Topic: "a", Partition: 1, Next: 99})
	rows := site.progressOf(t, "g")
	require.Len(t, rows, 5)
	const slack = float64(20 * time.Second)
	require.Equal(t, progressRow{topic: "a", next: 3}, rows[0])
	require.InDelta(t, time.Minute, rows[1].age, slack, "capped")
	require.GreaterOrEqual(t, rows[1].age, time.Minute)
	require.InDelta(t, time.Minute, rows[2].age, slack, "the present, one minute back")
	require.GreaterOrEqual(t, rows[2].age, time.Minute)
	require.EqualValues(t, 2, rows[3].next, "the last word counts")
	require.InDelta(t, 2*time.Hour, rows[3].age, slack)
	require.False(t, rows[4].known)

	// A progress without a time leaves the row, unless the partition went back: the row then has no
	// time.
	record(t, s, "g", dedup.Progress{Topic: "a", Partition: 2, Next: 6},
		dedup.Progress{Topic: "b", Next: 1})
	// A progress with a time replaces the row, also by an earlier one.
	record(t, s, "g", dedup.Progress{Topic: "a", Partition: 1, Next: 2, Time: ago(3 * day)})
	rows = site.progressOf(t, "g")
	require.InDelta(t, 3*day, rows[1].age, slack)
	require.EqualValues(t, 2, rows[1].next)
	require.InDelta(t, time.Minute, rows[2].age, slack)
	require.EqualValues(t, 6, rows[2].next)
	require.False(t, rows[3].known)

	known, err := s.Progress(t.Context(), "g", "nothing", "a", "a")
	require.NoError(t, err)
	require.Equal(t, []dedup.Progress{{Topic: "a", Next: 3}, {Topic: "a", Partition: 1, Next: 2},
		{Topic: "a", Partition: 2, Next: 6}}, known)
	require.NoError(t, s.ForgetProgress(t.Context(), "g", "a"))
	require.Len(t, site.progressOf(t, "g"), 2)
	require.Len(t, site.progressOf(t, "other"), 1)

	// Instances of a group record their partitions at once.
	var all sync.WaitGroup
	for i := range int32(8) {
		all.Go(func() {
			for n := range int64(5) {
				err := s.RecordProgress(t.Context(), "many", []dedup.Progress{
					{Topic: "a", Partition: i % 4, Next: n},
					{Topic: "b", Partition: i, Next: n}})
				if err != nil {
					t.Errorf("record: %v", err)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, site.progressOf(t, "many"), 12)
}

// registerDescriptors: a descriptor that differs from the recorded one is refused. The refused call
// records no descriptor and no topic (rule 7).
func registerDescriptors(t *testing.T, site Site) {
	s := site.store(t)
	r := dedup.Registration{Scope: "g", Group: "g", Topics: []string{"t", "t"},
		Descriptors: map[string]string{"a": "1", "b": "2"}}
	for range 2 {
		require.NoError(t, s.Register(t.Context(), r))
	}
	r.Descriptors = map[string]string{"a": "1", "c": "3"} // one is new, one no longer named
	require.NoError(t, s.Register(t.Context(), r))

	r.Descriptors, r.Topics = map[string]string{"b": "changed", "d": "4"}, []string{"t", "u"}
	err := s.Register(t.Context(), r)
	require.ErrorIs(t, err, dedup.ErrIdentityChanged)
	var changed *dedup.IdentityChangedError
	require.ErrorAs(t, err, &changed)
	require.Equal(t, []string{"b"}, changed.Types)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	require.ErrorContains(t, err, `type "b": on record [2], now [changed]`)
	require.Equal(t, 3, site.count(t, "SELECT count(*) FROM idem_descriptors"))
	require.Equal(t, 1, site.count(t, "SELECT count(*) FROM idem_scope_topics"))

	r.Scope = "other" // descriptors belong to a scope
	require.NoError(t, s.Register(t.Context(), r))
	r.Scope, r.AcceptNewIdentity = "g", true
	require.NoError(t, s.Register(t.Context(), r))
	r.AcceptNewIdentity = false
	require.NoError(t, s.Register(t.Context(), r), "it is on record now")
	require.Equal(t, 1, site.count(t, "SELECT count(*) FROM idem_descriptors "+
		"WHERE scope = 'g' AND descriptor = 'changed'"))
	require.Equal(t, 2, site.count(t, "SELECT count(*) FROM idem_scope_topics WHERE scope = 'g'"))
}

// registerScopes: a group without offsets does not start on topics that another scope remembers
// (rule 14).
func registerScopes(t *testing.T, site Site) {
	s := site.store(t)
	first := dedup.Registration{Scope: "orders", Group: "orders",
		Topics: []string{"payments", "refunds"}, NoOffsets: true}
	require.NoError(t, s.Register(t.Context(), first), "the topics are not on record yet")
	require.NoError(t, s.Register(t.Context(), first), "its offsets may have expired")

	second := dedup.Registration{Scope: "orders-v2", Group: "orders-v2",
		Topics: []string{"invoices", "payments"}, NoOffsets: true}
	for range 2 { // a refusal leaves no record that would admit the next attempt
		err := s.Register(t.Context(), second)
		require.ErrorIs(t, err, dedup.ErrOtherScope)
		require.ErrorContains(t, err, `topic "payments" is known under ["orders"]`)
	}
	inherits := second
	inherits.Scope = "orders"
	require.NoError(t, s.Register(t.Context(), inherits))
	runs := second
	runs.NoOffsets = false
	runs.Scope, runs.Group = "elsewhere", "elsewhere"
	require.NoError(t, s.Register(t.Context(), runs), "it has offsets: it is at work already")
	second.NewScope = true
	require.NoError(t, s.Register(t.Context(), second))
	second.NewScope = false
	require.NoError(t, s.Register(t.Context(), second), "it is known now")
}

// registerAtOnce: of instances with different descriptors that start together, exactly one is
// recorded.
func registerAtOnce(t *testing.T, site Site) {
	s := site.store(t)
	for round := range 10 {
		scope := string(rune('a' + round))
		errs := make([]error, 4)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				errs[i] = s.Register(t.Context(), dedup.Registration{Scope: scope,
					Descriptors: map[string]string{"x": string(rune('0' + i))}})
			})
		}
		all.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else {
				require.ErrorIs(t, err, dedup.ErrIdentityChanged)
			}
		}
		require.Equal(t, 1, won, errors.Join(errs...))
	}
}
