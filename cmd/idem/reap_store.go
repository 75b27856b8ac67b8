package main

import (
	"context"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/sqlstore"
)

// reaper deletes expired rows of a store.
type reaper interface {
	RunOnce(context.Context) (pgstore.ReapResult, error)
	Run(context.Context) error
}

// reaper returns the reaper of a store with tables.
func (l *openedStore) reaper(cfg pgstore.ReaperConfig) reaper {
	if l.pg != nil {
		return pgstore.NewReaper(l.pg, cfg)
	}
	c := sqlstore.ReaperConfig{
		Interval: cfg.Interval, Batch: cfg.Batch, Pause: cfg.Pause, Grace: cfg.Grace,
		DeadLetterRetention: cfg.DeadLetterRetention, WallClock: cfg.WallClock, Logger: cfg.Logger,
		Deleted: cfg.Deleted,
	}
	if cfg.Observe != nil {
		c.Observe = func(r sqlstore.ReapResult, err error) { cfg.Observe(resultOfReap(r), err) }
	}
	return sqlReaper{sqlstore.NewReaper(l.sql, c)}
}

// sqlReaper is a reaper of sqlstore.
type sqlReaper struct{ *sqlstore.Reaper }

// RunOnce implements [reaper].
func (r sqlReaper) RunOnce(ctx context.Context) (pgstore.ReapResult, error) {
	result, err := r.Reaper.RunOnce(ctx)
	return resultOfReap(result), err
}

func resultOfReap(r sqlstore.ReapResult) pgstore.ReapResult {
	result := pgstore.ReapResult{
		Elsewhere: r.Elsewhere, Events: r.Events, Claims: r.Claims, Starts: r.Starts,
		Stuck: r.Stuck, Silent: r.Silent,
	}
	for i := range r.Scopes {
		s := &r.Scopes[i]
		result.Scopes = append(result.Scopes, pgstore.ScopeAge{
			Scope: s.Scope, ConsumedUntil: s.ConsumedUntil, Topic: s.Topic, Partition: s.Partition,
			Horizon: s.Horizon,
		})
	}
	return result
}
