package sqlstore

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/decision"
	"github.com/idem-go/idem/internal/reaping"
)

// horizonRows bounds the expired rows of a table that one horizon step reads.
const horizonRows = 500_000

// ReaperConfig configures a [Reaper]. The zero value of each field is the default.
type ReaperConfig struct {
	// Interval is the pause between two runs. Defaults to 1 minute.
	Interval time.Duration
	// Batch is the number of rows that one transaction deletes. Defaults to 1,000; at most 10,000.
	Batch int
	// Pause is the pause between two batches. Defaults to 20 ms; negative: no pause.
	Pause time.Duration
	// Grace is the time between a move of the horizon and the deletion of the rows behind that
	// horizon. A claim of pgstore on the same tables must end within Grace, which takes 5 s at
	// most. Defaults to 1 minute.
	Grace time.Duration
	// DeadLetterRetention is the minimum retention of events that were ever given up, by the
	// wall clock, from their last change. Set the field to the retention of the dead-letter
	// topic, because each dead letter there may be replayed. Defaults to 30 days.
	DeadLetterRetention time.Duration
	// WallClock lists the scopes with rows that expire by the server's clock. Name scopes
	// without a Kafka consumer, such as those of HTTP requests, and scopes that are no longer in
	// use. A scope that is not listed and records no progress keeps all rows. Defaults to no
	// scope.
	WallClock []string
	// Logger defaults to slog.Default(). A run without deletions logs no line.
	Logger *slog.Logger
	// Observe, if not nil, is called after each run of [Reaper.Run], in the goroutine of Run.
	Observe func(ReapResult, error)
	// Deleted, if not nil, is called after each batch that has deleted rows, with their number, in
	// the goroutine of the run. It must return soon: the run waits for it.
	Deleted func(rows int64)
}

// Validate returns the mistakes in c.
func (c ReaperConfig) Validate() error {
	return errors.Join(c.ofLoop().Mistakes()...)
}

func (c *ReaperConfig) ofLoop() *reaping.Config {
	return &reaping.Config{Interval: c.Interval, Batch: c.Batch, Pause: c.Pause, Grace: c.Grace,
		DeadLetterRetention: c.DeadLetterRetention, Logger: c.Logger, Deleted: c.Deleted}
}

// ReapResult is the result of one run. With an error, the counts are those before the error.
type ReapResult struct {
	// Elsewhere is true if another reaper with the same WallClock works on these tables. Then this
	// run has mostly had no effect.
	Elsewhere bool
	Events    int64 // deleted from processed_events
	Claims    int64 // deleted from idempotency_keys
	Starts    int64 // deleted from event_starts
	// Stuck is the number of claims with a lease that ended more than a minute ago. No worker
	// has taken these claims over, because their events were not delivered again. The reaper
	// leaves stuck claims unchanged. -1: not known, for example after 2 s of reading a large
	// table.
	Stuck int64
	// Scopes are the scopes that record progress, or expire by the wall clock.
	Scopes []ScopeAge
	// Silent are scopes with rows, without progress, and not in WallClock. Their rows are never
	// deleted. The search reads the rows that expire first, so scopes may be missing.
	Silent []string
}

// Reaper deletes expired rows, in consumed time. A row expires when all partitions of the scope
// were consumed beyond the row's expires_at, by the broker's times from [Store.RecordProgress].
// A group that stands still keeps its rows, however long.
//
// Deletion takes two runs, at least [ReaperConfig].Grace apart. The first run moves the horizon of
// the scope. The second deletes the rows behind the horizon in small batches and waits for no
// claim. A crash between the two loses no event. An event older than the horizon without a row is
// answered [dedup.TooOld].
//
// Unfinished records (claimed, released, waiting for a later attempt) expire like all others,
// counted from their last change. Events that were ever given up stay for
// ReaperConfig.DeadLetterRetention.
//
// Run a Reaper in as many instances as you like. A row in idem_leases makes sure that one at a
// time works, of those with the same ReaperConfig.WallClock. Reapers with different scopes there
// work beside each other. The shortest DeadLetterRetention of all of them counts. In Postgres, that
// row is shared with the reaper of pgstore. A store of package sqlite runs a Reaper by itself.
//
// A statement reads at most 50,000 rows, and those that expired at the same time as the last of
// them. So rows that stay, such as those of silent scopes, do not stop the deletion of others. A
// Reaper reads many rows that stay once an hour, and begins behind them meanwhile. So the row of a
// dead letter may stay an hour longer.
//
// The role needs SELECT, INSERT, UPDATE and DELETE on idem_leases and idem_horizons, SELECT on
// idem_progress, and SELECT, UPDATE and DELETE on processed_events, idempotency_keys and
// event_starts (UPDATE for locks).
//
// A Reaper is safe for concurrent use. Concurrent runs of one Reaper wait for each other.
type Reaper struct {
	rows    *horizons
	loop    *reaping.Loop[ScopeAge]
	observe func(ReapResult, error)
	wrong   error
}

// NewReaper returns a reaper of the store's tables. [Reaper.Run] and [Reaper.RunOnce] return the
// mistakes in cfg.
func NewReaper(store *Store, cfg ReaperConfig) *Reaper {
	r := &Reaper{observe: cfg.Observe}
	if err := cfg.Validate(); err != nil {
		r.wrong = store.wrong("reap", err)
	}
	c := cfg.ofLoop()
	c.SetDefaults()
	r.rows = &horizons{s: store, wallClock: slices.Clone(cfg.WallClock),
		leaseName: decision.ReaperLease(cfg.WallClock), grace: c.Grace,
		deadLetters: c.DeadLetterRetention, batch: c.Batch}
	r.loop = reaping.New(r.rows, c)
	r.rows.scopes = reaping.Scopes{Rows: r.rows, Limit: horizonRows, Window: decision.WindowRows,
		Between: r.loop.Between}
	return r
}

// Run works until ctx ends and then returns nil. If the store is unavailable, Run logs one line,
// tries again after each Interval, and logs one line when the store works again. Run returns an
// error only for a mistake in the configuration.
func (r *Reaper) Run(ctx context.Context) error {
	if r.wrong != nil {
		return r.wrong
	}
	r.loop.Run(ctx, func(result reaping.Result[ScopeAge], err error) {
		if r.observe != nil {
			r.observe(ReapResult(result), err)
		}
	})
	return nil
}

// RunOnce does one run, for a job that is started from outside at intervals. A run moves horizons,
// and a later run deletes. An error of the store matches [dedup.ErrUnavailable].
func (r *Reaper) RunOnce(ctx context.Context) (ReapResult, error) {
	if r.wrong != nil {
		return ReapResult{}, r.wrong
	}
	result, err := r.loop.RunOnce(ctx)
	return ReapResult(result), err
}
