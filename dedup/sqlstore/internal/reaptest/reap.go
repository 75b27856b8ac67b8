package reaptest

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/stretchr/testify/require"
)

// lag: a partition is three days behind. The row of an event that may have a copy there stays,
// although the row has expired by every clock. The row is deleted after the partition has passed
// the time of the event (rule 8).
func lag(t *testing.T, site Site) {
	s := site.store(t)
	site.put(t, old{scope: "g", id: "a", made: 3 * day, expired: day},
		old{scope: "g", id: "b", made: day})
	record(t, s, "g", dedup.Progress{Topic: "t", Partition: 0, Next: 100, CaughtUp: true},
		dedup.Progress{Topic: "t", Partition: 1, Next: 7, Time: ago(3 * day)})
	for range 3 {
		result := reap(t, s, soonest())
		require.Zero(t, result.Events+result.Claims)
		require.Len(t, result.Scopes, 1)
		require.EqualValues(t, 1, result.Scopes[0].Partition, "the partition that holds up deletion")
		require.Zero(t, result.Scopes[0].Horizon)
	}
	record(t, s, "g", dedup.Progress{Topic: "t", Partition: 1, Next: 99, Time: ago(time.Hour)})
	result := reap(t, s, soonest()) // announced
	require.Zero(t, result.Events+result.Claims)
	require.WithinDuration(t, ago(3*day), result.Scopes[0].Horizon, time.Minute)
	require.Len(t, site.left(t), 4)
	result = reap(t, s, soonest())
	require.Equal(t, []int64{1, 1}, []int64{result.Events, result.Claims})
	require.Equal(t, []string{"event/b", "key/b"}, site.left(t))
	result = reap(t, s, soonest())
	require.Zero(t, result.Events+result.Claims)
}

// cutoff: of two rows behind the horizon, the one that expired after the cut-off stays (rule 8).
func cutoff(t *testing.T, site Site) {
	s := site.store(t)
	site.put(t, old{scope: "g", id: "before", made: 9 * day, expired: 3 * day},
		old{scope: "g", id: "after", made: 10 * day, expired: time.Hour})
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, Time: ago(2 * day)})
	reap(t, s, soonest())
	result := reap(t, s, soonest())
	require.Equal(t, []int64{1, 1}, []int64{result.Events, result.Claims})
	require.Equal(t, []string{"event/after", "key/after"}, site.left(t))
}

// standsStill: the rows of a stopped group stay. So do the rows of a group that recorded no
// progress, and of a group with a partition without a known time (rule 8).
func standsStill(t *testing.T, site Site) {
	s := site.store(t)
	for _, scope := range []string{"stopped", "silent", "partly", "clock"} {
		site.put(t, old{scope: scope, id: scope, made: 9 * day, expired: 8 * day})
	}
	record(t, s, "stopped", dedup.Progress{Topic: "t", Next: 100, Time: ago(9 * day)})
	record(t, s, "partly", dedup.Progress{Topic: "t", Next: 100, CaughtUp: true},
		dedup.Progress{Topic: "t", Partition: 1})
	cfg := soonest()
	cfg.WallClock = []string{"clock", "clock", "unused"}
	for range 3 {
		reap(t, s, cfg)
	}
	require.Equal(t, []string{"event/partly", "event/silent", "event/stopped", "key/partly",
		"key/silent", "key/stopped"}, site.left(t))
	require.NoError(t, s.ForgetProgress(t.Context(), "partly", "t"))
	record(t, s, "partly", dedup.Progress{Topic: "u", Next: 1, CaughtUp: true})
	for range 2 {
		reap(t, s, soonest())
	}
	require.Len(t, site.left(t), 4)
}

// steps: a reaper that is killed between its two steps has deleted no row. The next reaper deletes
// only after every claim sees the horizon (rule 8).
func steps(t *testing.T, site Site) {
	s := site.store(t)
	site.put(t, old{scope: "g", id: "a", made: 3 * day, expired: day, origin: 3*day + time.Minute})
	record(t, s, "g", caughtUp())
	patient := soonest()
	patient.Grace = time.Hour
	d := site.Dialect()
	stored := func() (before, at int64) {
		t.Helper()
		text := "SELECT " + d.Micros(d.Quote+"before"+d.Quote) + ", " + d.Micros("updated_at") +
			" FROM idem_horizons"
		require.NoError(t, site.DB.QueryRowContext(t.Context(), text).Scan(&before, &at))
		return before, at
	}
	for range 3 {
		require.Zero(t, reap(t, s, patient).Events)
	}
	require.Len(t, site.left(t), 2)
	before, at := stored()
	require.WithinDuration(t, ago(3*day), time.UnixMicro(before), 10*time.Second)
	reap(t, s, patient)
	_, again := stored()
	require.Equal(t, at, again, "a horizon that moves in every run is never old enough")

	// The group was rewound before the second step: rows that its records may need stay.
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 0, Time: ago(2 * day)})
	require.Zero(t, reap(t, s, soonest()).Events)
	record(t, s, "g", caughtUp())
	require.EqualValues(t, 1, reap(t, s, soonest()).Events)
	require.Empty(t, site.left(t))
}

// clocks: a producer's clock puts the time of an event after the horizon. The event would be Fresh
// without its row, so the row stays (P-10).
func clocks(t *testing.T, site Site) {
	s := site.store(t)
	site.put(t, old{scope: "g", id: "early", made: 3 * day, expired: day, origin: 2 * day})
	record(t, s, "g", caughtUp())
	for range 3 {
		reap(t, s, soonest())
	}
	require.Equal(t, []string{"event/early", "key/early"}, site.left(t))
	// moves the horizon
	site.put(t, old{scope: "g", id: "later", made: 2*day - time.Hour, expired: day})
	for range 3 {
		reap(t, s, soonest())
	}
	require.Empty(t, site.left(t))
}

// deadLetters: the row of an event that was given up is kept as long as its dead letter. That holds
// also after the event was handled at last (rule 8).
func deadLetters(t *testing.T, site Site) {
	s := site.store(t)
	site.put(t,
		old{scope: "g", id: "dead", status: "dead", made: 20 * day, expired: 19 * day, changed: 10 * day},
		old{scope: "g", id: "dead at once", status: "dead", made: 20 * day, expired: 19 * day},
		old{scope: "g", id: "put right", generation: 1, made: 40 * day, expired: 12 * day,
			changed: 12 * day},
		old{scope: "g", id: "long dead", status: "dead", made: 41 * day, expired: 40 * day,
			changed: 31 * day})
	record(t, s, "g", caughtUp())
	for range 2 {
		reap(t, s, soonest())
	}
	require.Equal(t, []string{"event/dead", "event/dead at once", "event/put right", "key/dead",
		"key/dead at once", "key/put right"}, site.left(t))
	cfg := soonest()
	cfg.DeadLetterRetention = 11 * day
	for range 2 {
		reap(t, s, cfg)
	}
	require.Equal(t, []string{"event/dead", "key/dead"}, site.left(t))
}

// stuck: a stuck claim is reported and kept. After its retention the claim is deleted like all
// others (rule 33).
func stuck(t *testing.T, site Site) {
	s := site.store(t)
	site.put(t,
		old{scope: "g", id: "stuck", status: "claimed", made: day, leaseOver: day, notEvent: true},
		old{scope: "g", id: "alive", status: "claimed", made: day, leaseOver: -time.Minute,
			notEvent: true},
		old{scope: "g", id: "just over", status: "claimed", made: day, leaseOver: time.Second,
			notEvent: true},
		old{scope: "g", id: "expired", status: "claimed", made: 9 * day, expired: 2 * day,
			leaseOver: 9 * day, notEvent: true},
		old{scope: "g", id: "released", status: "released", made: 9 * day, expired: 2 * day,
			notEvent: true},
		old{scope: "g", id: "moved", status: "moved", made: 9 * day, expired: 2 * day})
	record(t, s, "g", caughtUp())
	require.EqualValues(t, 2, reap(t, s, soonest()).Stuck)
	result := reap(t, s, soonest())
	require.EqualValues(t, 1, result.Stuck)
	require.Equal(t, []int64{1, 3}, []int64{result.Events, result.Claims})
	require.Equal(t, []string{"key/alive", "key/just over", "key/stuck"}, site.left(t))
}

// starts: counts of starts are deleted after a day without another start.
func starts(t *testing.T, site Site) {
	s := site.store(t)
	o := dedup.Origin{Topic: "t", Offset: 1}
	begin := func(id string) uint32 {
		t.Helper()
		n, err := s.CountStart(t.Context(), dedup.Key{Scope: "g", Type: "x", ID: id}, o)
		require.NoError(t, err)
		return n
	}
	for _, id := range []string{"old", "older", "again", "new"} {
		begin(id)
	}
	site.exec(t, "UPDATE event_starts SET updated_at = ¿ WHERE event_id <> 'new'",
		site.Dialect().Time(ago(25*time.Hour)))
	require.EqualValues(t, 2, begin("again"))
	cfg := soonest()
	cfg.Batch = 1
	require.EqualValues(t, 2, reap(t, s, cfg).Starts)
	require.EqualValues(t, 2, begin("new"))
	require.EqualValues(t, 3, begin("again"))
	require.EqualValues(t, 1, begin("old"))
}

// silent: a scope with rows and without progress keeps all rows. The log names such a scope once
// (rule 8).
func silent(t *testing.T, site Site) {
	s := site.store(t)
	for _, scope := range []string{"loop", "consumer", "http"} {
		site.put(t, old{scope: scope, id: "1", made: time.Hour})
	}
	site.put(t, old{scope: "new", id: "1", made: time.Second})
	record(t, s, "consumer", dedup.Progress{Topic: "t", Next: 1})
	cfg := soonest()
	cfg.WallClock = []string{"http"}
	require.Equal(t, []string{"loop"}, reap(t, s, cfg).Silent)

	var log strings.Builder
	ctx, stop := context.WithCancel(t.Context())
	runs := 0
	cfg.Interval, cfg.Logger = time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
	cfg.Observe = func(_ sqlstore.ReapResult, err error) {
		require.NoError(t, err)
		if runs++; runs == 3 {
			stop()
		}
	}
	require.NoError(t, sqlstore.NewReaper(s, cfg).Run(ctx))
	require.Equal(t, 1, strings.Count(log.String(), "records no progress"), log.String())
	require.Contains(t, log.String(), "scope=loop")
}

func configuration(t *testing.T, site Site) {
	s := site.store(t)
	for _, cfg := range []sqlstore.ReaperConfig{{Interval: -1}, {Grace: -1},
		{DeadLetterRetention: -1}, {Batch: 10_001}, {Batch: -1}} {
		_, err := sqlstore.NewReaper(s, cfg).RunOnce(t.Context())
		require.ErrorContains(t, err, "out of range")
		require.Error(t, sqlstore.NewReaper(s, cfg).Run(t.Context()))
	}
}

// missingTable: Check finds each missing table of progress, registrations, deferred events and the
// reaper, and names the call that makes the table. No call that needs the table succeeds.
func missingTable(t *testing.T, site Site) {
	s := site.store(t)
	_, err := s.Check(t.Context())
	require.NoError(t, err)
	for _, table := range []string{"deferred_queues", "deferred_events", "idem_descriptors",
		"idem_scope_topics", "idem_scopes", "idem_horizons", "idem_progress"} {
		site.exec(t, "DROP TABLE "+table)
		_, err := s.Check(t.Context())
		var setup *dedup.SetupError
		require.ErrorAs(t, err, &setup, table)
		require.ErrorContains(t, err, table)
		require.Contains(t, setup.Fix, site.Dialect().Tables)
	}
	err = s.RecordProgress(t.Context(), "g", []dedup.Progress{{Topic: "t"}})
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.ErrorIs(t, s.Register(t.Context(), dedup.Registration{Scope: "g"}), dedup.ErrUnavailable)
	_, err = sqlstore.NewReaper(s, sqlstore.ReaperConfig{}).RunOnce(t.Context())
	require.ErrorIs(t, err, dedup.ErrUnavailable)
}
