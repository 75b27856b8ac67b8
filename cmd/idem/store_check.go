package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/pgschema"
)

// check checks the tables and settings of a store as the start of a worker does.
func (l *openedStore) check(ctx context.Context) (warnings []string, err error) {
	if l.pg == nil {
		return l.store.(dedup.Checker).Check(ctx)
	}
	pool, err := workerPool(ctx, l.pool)
	if err != nil {
		return nil, err
	}
	if pool == nil {
		return l.pg.Check(ctx)
	}
	defer pool.Close()
	return pgstore.New(pool, l.withLayout()...).Check(ctx)
}

// workerPool returns a pool with the settings of [pgstore.Open], because the check of a store warns
// of sessions without them. It returns nil if a pooler refuses the settings, which no worker behind
// that pooler can have.
func workerPool(ctx context.Context, of *pgxpool.Pool) (*pgxpool.Pool, error) {
	cfg := of.Config() // a copy
	cfg.MaxConns = 2
	pgstore.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if pgschema.Code(pool.Ping(ctx)) == "08P01" { // "unsupported startup parameter"
		pool.Close()
		return nil, nil //nolint:nilnil // no such pool
	}
	return pool, nil
}
