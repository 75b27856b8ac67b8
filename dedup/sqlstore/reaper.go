package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
	"github.com/idem-go/idem/internal/safetext"
)

const (
	// choreLimit bounds each transaction of a reaper.
	choreLimit = time.Minute
	// horizonRows bounds the expired rows of a table that one horizon step reads.
	horizonRows = 500_000
	// silentRows is the number of rows per table that the search for silent scopes reads.
	silentRows = 1000
	// silentAfter is how long a scope may have rows without progress on record.
	silentAfter = 5 * time.Minute
	// stuckLimit bounds the search for stuck claims, which reads the whole table.
	stuckLimit = 2 * time.Second
	// stuckAfter is the time after the end of the lease when a claim counts as stuck.
	stuckAfter = time.Minute
	// stuckRest is the pause after a search for stuck claims that took too long.
	stuckRest = time.Hour
	// maxSilent is how many silent scopes are logged.
	maxSilent = 100
)

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
	var wrong error
	for _, field := range []struct {
		name string
		bad  bool
	}{
		{"Interval", c.Interval < 0}, {"Grace", c.Grace < 0},
		{"DeadLetterRetention", c.DeadLetterRetention < 0},
		{"Batch", c.Batch < 0 || c.Batch > 10_000},
	} {
		if field.bad {
			wrong = errors.Join(wrong, fmt.Errorf("ReaperConfig.%s is out of range", field.name))
		}
	}
	return wrong
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
	rows  horizons
	cfg   ReaperConfig
	wrong error

	mu       sync.Mutex
	token    dedup.Token
	lease    time.Duration
	renewed  time.Time
	leased   bool
	noLookAt time.Time // before this time: no search for stuck claims
	// silentLogged has the scopes in the log.
	silentLogged map[string]bool
}

// NewReaper returns a reaper of the store's tables. [Reaper.Run] and [Reaper.RunOnce] return the
// mistakes in cfg.
func NewReaper(store *Store, cfg ReaperConfig) *Reaper {
	r := &Reaper{token: dedup.NewToken()}
	if err := cfg.Validate(); err != nil {
		r.wrong = store.wrong("reap", err)
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
	r.rows = horizons{s: store, wallClock: slices.Clone(cfg.WallClock), grace: cfg.Grace,
		leaseName: decision.ReaperLease(cfg.WallClock), deadLetters: cfg.DeadLetterRetention,
		rows: horizonRows, window: decision.WindowRows, between: r.between}
	// longer than a transaction, and than the pause between two runs
	r.lease = cfg.Interval + 2*choreLimit
	return r
}

// Run works until ctx ends and then returns nil. If the store is unavailable, Run logs one line,
// tries again after each Interval, and logs one line when the store works again. Run returns an
// error only for a mistake in the configuration.
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
		r.log(ctx, result, err, failing)
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

func (r *Reaper) log(ctx context.Context, result ReapResult, err error, failing bool) {
	switch {
	case err != nil && !failing:
		r.cfg.Logger.WarnContext(ctx, "reaper cannot work, tries again", "error",
			safetext.Line(err))
	case err == nil && failing:
		r.cfg.Logger.InfoContext(ctx, "reaper works again")
	}
	if result.Events+result.Claims+result.Starts > 0 {
		r.cfg.Logger.InfoContext(ctx, "expired records deleted", "events", result.Events, "claims",
			result.Claims, "starts", result.Starts, "stuck", result.Stuck)
	}
	r.logSilent(ctx, result.Silent)
	if r.cfg.Observe != nil {
		r.cfg.Observe(result, err)
	}
}

// logSilent logs each silent scope once.
func (r *Reaper) logSilent(ctx context.Context, scopes []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, scope := range scopes {
		if r.silentLogged[scope] || len(r.silentLogged) >= maxSilent {
			continue
		}
		if r.silentLogged == nil {
			r.silentLogged = make(map[string]bool)
		}
		r.silentLogged[scope] = true
		r.cfg.Logger.WarnContext(ctx, "scope records no progress, its rows are never deleted: "+
			"see docs/embedding.md for loops of your own, or list a scope without a consumer in "+
			"ReaperConfig.WallClock", "scope", scope)
	}
}

// RunOnce does one run, for a job that is started from outside at intervals. A run moves horizons,
// and a later run deletes. An error of the store matches [dedup.ErrUnavailable].
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
	// from the start, or because this reaper stood still for too long
	if errors.Is(err, errElsewhere) {
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
	// A scope whose rows cannot be deleted in time holds up no other scope.
	var slow []error
	for i := range result.Scopes {
		a := &result.Scopes[i]
		switch err := r.reapScope(ctx, a, result); {
		case err == nil:
		case r.tooSlow(ctx, err) && len(slow) < maxSlow:
			slow = append(slow, fmt.Errorf("scope %q: %w", a.Scope, err))
		default:
			return errors.Join(append(slow, fmt.Errorf("scope %q: %w", a.Scope, err))...)
		}
	}
	defer func() { err = errors.Join(append(slow, err)...) }()
	if result.Starts, err = r.reapStarts(ctx); err != nil {
		return err
	}
	if result.Silent, err = r.rows.silent(ctx, result.Scopes); err != nil {
		return err
	}
	result.Stuck, err = r.lookForStuck(ctx)
	return err
}

// maxSlow bounds the scopes of one run that may take too long.
const maxSlow = 3

// tooSlow reports whether a transaction of the run has reached its time limit.
func (r *Reaper) tooSlow(ctx context.Context, err error) bool {
	return ctx.Err() == nil &&
		(errors.Is(err, context.DeadlineExceeded) || r.rows.s.d.Classify(err) == Stopped)
}

// reapScope deletes the rows behind the horizon, if the horizon is old enough. Only then the
// horizon moves on: a horizon that moved in each run would never be old enough.
func (r *Reaper) reapScope(ctx context.Context, a *ScopeAge, result *ReapResult) error {
	if a.ConsumedUntil.IsZero() || !a.ripe {
		return nil
	}
	if !a.cutoff.IsZero() {
		for _, table := range []struct {
			rows *table
			n    *int64
		}{{eventsTable, &result.Events}, {keysTable, &result.Claims}} {
			if err := r.empty(ctx, table.rows, a, table.n); err != nil {
				return err
			}
		}
	}
	return r.rows.move(ctx, a)
}

// empty deletes from one table, window after window.
func (r *Reaper) empty(ctx context.Context, t *table, a *ScopeAge, total *int64) error {
	return r.rows.windows(ctx, t, r.rows.begin(t, a), a.cutoff,
		func(from, to time.Time) (bool, error) {
			part := *a
			part.cutoff = to
			return true, r.emptyWindow(ctx, t, &part, from, total)
		})
}

// emptyWindow deletes from one table, batch after batch, from a time on. No new rows come behind a
// horizon, and a batch without a deletion moves the time on, so emptyWindow ends.
func (r *Reaper) emptyWindow(ctx context.Context, t *table, a *ScopeAge, from time.Time,
	total *int64) error {
	for {
		rows, err := r.rows.find(ctx, t, a, from, r.cfg.Batch)
		if err != nil || len(rows.keys) == 0 {
			return err
		}
		n, err := r.rows.remove(ctx, t, a, rows.keys)
		r.count(n, total)
		if err != nil || len(rows.keys) < r.cfg.Batch {
			return err
		}
		if n == 0 && !rows.last.After(from) { // locked rows, all of one time
			rows.last = from.Add(time.Microsecond)
		}
		from = rows.last
		if err := r.between(ctx); err != nil {
			return err
		}
	}
}

func (r *Reaper) reapStarts(ctx context.Context) (total int64, err error) {
	for {
		n, more, err := r.rows.removeStarts(ctx, r.cfg.Batch)
		r.count(n, &total)
		if err != nil || !more || n == 0 {
			return total, err
		}
		if err := r.between(ctx); err != nil {
			return total, err
		}
	}
}

// count adds the rows of a batch to total.
func (r *Reaper) count(n int64, total *int64) {
	*total += n
	if n > 0 && r.cfg.Deleted != nil {
		r.cfg.Deleted(n)
	}
}

// between waits between two batches and renews the lease.
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

func (r *Reaper) renewLease(ctx context.Context) error {
	began := time.Now()
	r.leased = true // maybe: an error may hide a commit
	err := r.rows.lease(ctx, r.token, r.lease)
	if errors.Is(err, errElsewhere) {
		r.leased = false
	}
	r.renewed = began
	return err
}

// leave ends the lease, so that another reaper can work at once. After an error the lease ends by
// itself.
func (r *Reaper) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leased {
		_ = r.rows.leave(ctx, r.token)
	}
	r.leased = false
}

func (r *Reaper) lookForStuck(ctx context.Context) (n int64, err error) {
	began := time.Now()
	if began.Before(r.noLookAt) {
		return -1, nil
	}
	n, err = r.rows.stuck(ctx)
	if err != nil && ctx.Err() == nil && time.Since(began) >= stuckLimit {
		r.noLookAt = time.Now().Add(stuckRest)
		return -1, nil
	}
	return n, err
}
