package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/safetext"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// stuckLimit bounds the look for stuck claims, which reads the whole table.
	stuckLimit = 2 * time.Second
	// stuckAfter is how long after the end of its lease a claim counts as stuck.
	stuckAfter = time.Minute
	// stuckRest is how long a look that took too long is not repeated.
	stuckRest = time.Hour
	// maxSilent is how many silent scopes are logged.
	maxSilent = 100
)

// ReaperConfig says how a [Reaper] works. The zero value of a field is its default.
type ReaperConfig struct {
	// Interval is the pause between two runs. Defaults to 1 minute.
	Interval time.Duration
	// Batch is how many rows one transaction deletes. Defaults to 1,000; at most 10,000.
	Batch int
	// Pause is waited between two batches. Defaults to 20 ms; negative: none.
	Pause time.Duration
	// Grace is how long a horizon is known before rows behind it go. It must be longer than any claim's statement may
	// take, which is 5 s. Defaults to 1 minute.
	Grace time.Duration
	// DeadLetterRetention is how long what was ever given up is kept at least, by the wall clock, from its last change:
	// as long as the dead-letter topic keeps its dead letters, since one of them may be published again. Defaults to 30 days.
	DeadLetterRetention time.Duration
	// WallClock are scopes whose rows go when they expire, by the server's clock. It is meant for claims that no Kafka
	// consumer makes, such as those of HTTP requests, and for scopes that nobody uses any longer. A scope that is not
	// named, and records no progress, keeps everything.
	WallClock []string
	// Logger defaults to slog.Default(). A run that deletes nothing logs nothing.
	Logger *slog.Logger
	// Observe, if not nil, is told of every run of [Reaper.Run], by its goroutine.
	Observe func(ReapResult, error)
}

// ReapResult is what one run did. It is valid also with an error: what was done before it.
type ReapResult struct {
	// Elsewhere says that another reaper is at work on these tables, so that this one left, as a rule without doing
	// anything.
	Elsewhere bool
	Events    int64 // deleted from processed_events
	Claims    int64 // deleted from idempotency_keys
	Starts    int64 // deleted from event_starts
	// Stuck counts claims whose lease ended more than a minute ago and that nobody has taken over: their event was not
	// delivered again. They are not touched (rule 33). -1: not known, such as after 2 s of looking through a large table.
	Stuck int64
	// Scopes are those that record progress or go by the wall clock.
	Scopes []ScopeAge
	// Silent are scopes that have rows, record no progress, and are not of the wall clock: nothing of them is ever deleted. It is
	// what the rows that expire first show, so some may be missing.
	Silent []string
}

// Reaper deletes what has expired, in consumed time: a row goes when the whole scope has consumed beyond its expires_at,
// by the broker's times that [Store.RecordProgress] got. A group that stands still forgets nothing, however long (rule 8).
//
// A row goes in two steps, in two runs at least [ReaperConfig].Grace apart: the horizon of the scope is moved, then what
// lies behind is deleted in small batches, never waiting for a claim. A crash between the steps loses nothing. An event
// from before the horizon whose row is gone is answered [dedup.TooOld].
//
// Unfinished records (claimed, released, waiting for a later attempt) go like all others, their retention counts from
// their last change. What was ever given up stays for ReaperConfig.DeadLetterRetention.
//
// Run one in as many instances as you like: one at a time works, by a row in idem_leases. Its role needs SELECT, INSERT,
// UPDATE and DELETE on that table and on idem_horizons, SELECT on idem_progress, and SELECT, UPDATE and DELETE on
// processed_events, idempotency_keys and event_starts (UPDATE is what locking a row asks for). In the compact layout it is
// the tables of that layout, and SELECT on idem_kinds and the two views.
//
// A Reaper is safe for concurrent use; runs of one Reaper wait for each other.
type Reaper struct {
	rows  horizons
	cfg   ReaperConfig
	wrong error

	mu       sync.Mutex
	token    dedup.Token
	lease    time.Duration
	renewed  time.Time
	noLookAt time.Time // not before this for stuck claims

	silentTold map[string]bool // scopes that were logged; used by Run only
}

// NewReaper returns a reaper of the store's tables. A mistake in cfg is returned by [Reaper.Run] and [Reaper.RunOnce].
func NewReaper(store *Store, cfg ReaperConfig) *Reaper {
	r := &Reaper{token: dedup.NewToken()}
	for _, c := range []struct {
		name string
		bad  bool
	}{
		{"Interval", cfg.Interval < 0}, {"Grace", cfg.Grace < 0}, {"DeadLetterRetention", cfg.DeadLetterRetention < 0},
		{"Batch", cfg.Batch < 0 || cfg.Batch > 10_000},
	} {
		if c.bad {
			r.wrong = errors.Join(r.wrong, fmt.Errorf("%w: ReaperConfig.%s is out of range", errOption, c.name))
		}
	}
	cfg.Interval = cmp.Or(cfg.Interval, time.Minute)
	cfg.Batch = cmp.Or(cfg.Batch, 1000)
	cfg.Pause = cmp.Or(cfg.Pause, 20*time.Millisecond)
	cfg.Grace = cmp.Or(cfg.Grace, time.Minute)
	cfg.DeadLetterRetention = cmp.Or(cfg.DeadLetterRetention, 30*24*time.Hour)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	r.cfg = cfg
	r.rows = horizons{db: store.db, wallClock: append([]string{}, cfg.WallClock...), grace: cfg.Grace,
		deadLetters: cfg.DeadLetterRetention, batch: cfg.Batch}
	r.lease = cfg.Interval + 2*choreLimit // longer than a statement, and than the pause between two runs
	return r
}

// Run works until ctx ends and then returns nil. A store that cannot be used is waited for, with one log line when that
// begins and one when it is over. The only errors are those of the configuration.
func (r *Reaper) Run(ctx context.Context) error {
	if r.wrong != nil {
		return r.wrong
	}
	defer r.leave(ctx)
	failing := false
	for {
		result, err := r.run(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.tell(ctx, result, err, failing)
		failing = err != nil
		timer := time.NewTimer(r.cfg.Interval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

func (r *Reaper) tell(ctx context.Context, result ReapResult, err error, failing bool) {
	switch {
	case err != nil && !failing:
		r.cfg.Logger.WarnContext(ctx, "reaper cannot work, will go on trying", "error", safetext.Line(err))
	case err == nil && failing:
		r.cfg.Logger.InfoContext(ctx, "reaper works again")
	}
	if result.Events+result.Claims+result.Starts > 0 {
		r.cfg.Logger.InfoContext(ctx, "expired records deleted", "events", result.Events, "claims", result.Claims,
			"starts", result.Starts, "stuck", result.Stuck)
	}
	r.tellSilent(ctx, result.Silent)
	if r.cfg.Observe != nil {
		r.cfg.Observe(result, err)
	}
}

// tellSilent logs each scope of which nothing is ever deleted, once.
func (r *Reaper) tellSilent(ctx context.Context, scopes []string) {
	for _, scope := range scopes {
		if r.silentTold[scope] || len(r.silentTold) >= maxSilent {
			continue
		}
		if r.silentTold == nil {
			r.silentTold = make(map[string]bool)
		}
		r.silentTold[scope] = true
		r.cfg.Logger.WarnContext(ctx, "scope records no progress, nothing of it is deleted: see docs/embedding.md for loops of your own, "+
			"ReaperConfig.WallClock for scopes without a consumer", "scope", scope)
	}
}

// RunOnce does one run: for a job that is started from outside, again and again. What a run announces, a later one
// deletes. Errors match [dedup.ErrUnavailable] as those of the store do.
func (r *Reaper) RunOnce(ctx context.Context) (ReapResult, error) {
	if r.wrong != nil {
		return ReapResult{}, r.wrong
	}
	defer r.leave(ctx)
	return r.run(ctx)
}

func (r *Reaper) run(ctx context.Context) (ReapResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	result := ReapResult{Stuck: -1}
	err := r.reap(ctx, &result)
	if errors.Is(err, errElsewhere) { // from the start, or this one stood still for too long
		result.Elsewhere, err = true, nil
	}
	return result, err
}

func (r *Reaper) reap(ctx context.Context, result *ReapResult) (err error) {
	if err := r.renewLease(ctx); err != nil {
		return err
	}
	if result.Scopes, err = r.rows.ages(ctx); err != nil {
		return err
	}
	for i := range result.Scopes {
		if err := r.reapScope(ctx, &result.Scopes[i], result); err != nil {
			return err
		}
	}
	if result.Starts, err = r.reapStarts(ctx); err != nil {
		return err
	}
	if result.Silent, err = r.rows.silent(ctx); err != nil {
		return err
	}
	result.Stuck, err = r.lookForStuck(ctx)
	return err
}

// reapScope deletes what was announced long enough ago, then announces more. Only then: a horizon that moved in every run
// would never be old enough.
func (r *Reaper) reapScope(ctx context.Context, a *ScopeAge, result *ReapResult) error {
	if a.ConsumedUntil.IsZero() || !a.ripe {
		return nil
	}
	if a.cutoff.Valid {
		for _, table := range []struct {
			text func(*statements) string
			n    *int64
		}{
			{func(q *statements) string { return q.aging.events }, &result.Events},
			{func(q *statements) string { return q.aging.keys }, &result.Claims},
		} {
			if err := r.empty(ctx, table.text, a, table.n); err != nil {
				return err
			}
		}
	}
	return r.rows.moveHorizon(ctx, a)
}

// empty deletes from one table, batch after batch. It ends, since no new rows come behind a horizon.
func (r *Reaper) empty(ctx context.Context, text func(*statements) string, a *ScopeAge, total *int64) error {
	from := pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	for {
		n, next, err := r.rows.deleteBatch(ctx, text, a, from)
		*total += n
		if err != nil || n < int64(r.cfg.Batch) {
			return err
		}
		from = next
		if err := r.between(ctx); err != nil {
			return err
		}
	}
}

func (r *Reaper) reapStarts(ctx context.Context) (total int64, err error) {
	for {
		var n int64
		err := r.rows.inTx(ctx, choreLimit, func(ctx context.Context, tx pgx.Tx, q *statements) error {
			return tx.QueryRow(ctx, q.aging.starts, int64(r.cfg.Batch)).Scan(&n)
		})
		total += n
		if err != nil || n < int64(r.cfg.Batch) {
			return total, err
		}
		if err := r.between(ctx); err != nil {
			return total, err
		}
	}
}

// between two batches others get their turn, and the right to work is renewed.
func (r *Reaper) between(ctx context.Context) error {
	if r.cfg.Pause > 0 {
		timer := time.NewTimer(r.cfg.Pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if time.Since(r.renewed) < r.lease/4 {
		return ctx.Err()
	}
	return r.renewLease(ctx)
}

var errElsewhere = errors.New("pgstore: reap: another reaper is at work")

func (r *Reaper) renewLease(ctx context.Context) error {
	began := time.Now()
	err := r.rows.inTx(ctx, choreLimit, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		var one int
		return tx.QueryRow(ctx, q.aging.lease, pgtype.UUID{Bytes: r.token, Valid: true}, microseconds(r.lease)).Scan(&one)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return errElsewhere
	}
	r.renewed = began
	return err
}

// leave lets another one work at once. If it fails the lease ends by itself.
func (r *Reaper) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.rows.inTx(ctx, choreLimit, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		_, err := tx.Exec(ctx, q.aging.leave, pgtype.UUID{Bytes: r.token, Valid: true})
		return err
	})
}

func (r *Reaper) lookForStuck(ctx context.Context) (n int64, err error) {
	if time.Now().Before(r.noLookAt) {
		return -1, nil
	}
	err = r.rows.inTx(ctx, stuckLimit, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		return tx.QueryRow(ctx, q.aging.stuck, microseconds(stuckAfter)).Scan(&n)
	})
	if sqlState(err) == codeCanceled && ctx.Err() == nil {
		r.noLookAt = time.Now().Add(stuckRest)
		return -1, nil
	}
	return n, err
}
