package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
)

// storeKind returns the scheme of a store's URL. Errors do not show the URL, which may hold a
// password.
func storeKind(url string) (string, error) {
	kind, _, _ := strings.Cut(url, "://")
	if path, ok := sqlitePath(url); ok && path != "" {
		return "sqlite", nil
	}
	switch kind {
	case "memory", "redis", "rediss", "postgres", "postgresql":
		return kind, nil
	}
	return "", fmt.Errorf("-store must be memory or sqlite:FILE, or begin with redis://, " +
		"rediss:// or postgres://")
}

// sqlitePath returns the file of a store in SQLite.
func sqlitePath(url string) (path string, ok bool) {
	path, ok = strings.CutPrefix(url, "sqlite:")
	return path, ok && !strings.HasPrefix(path, "//") // not the path sqlite://host/file
}

// openedStore is the store of -store, with its clients for the doctor.
type openedStore struct {
	dedup.Store
	close func()
	pools []*pgxpool.Pool
	redis []redis.UniversalClient
}

// openStore opens the store of -store.
func openStore(ctx context.Context, url string, log *slog.Logger) (*openedStore, error) {
	kind, err := storeKind(url)
	if err != nil {
		return nil, usageError{err}
	}
	switch kind {
	case "memory":
		log.Warn("the store is in memory: " +
			"after a restart, or on another instance, notifications are sent again")
		return &openedStore{Store: memstore.New(memstore.Volatile()), close: func() {}}, nil
	case "sqlite":
		path, _ := sqlitePath(url)
		store, err := sqlite.Open(ctx, path)
		if err != nil {
			return nil, err
		}
		return &openedStore{Store: store, close: func() { _ = store.Close() }}, nil
	case "redis", "rediss":
		opts, err := redis.ParseURL(url)
		if err != nil {
			return nil, usageError{fmt.Errorf("-store is not a valid %s URL", kind)}
		}
		redis.SetLogger(redisLog{log})
		client := redis.NewClient(opts)
		return &openedStore{
			Store: redisstore.New(client), close: func() { _ = client.Close() },
			redis: []redis.UniversalClient{client},
		}, nil
	}
	return openPostgres(ctx, url, log)
}

// openPostgres also creates the missing tables, and deletes expired records while the store is
// open.
func openPostgres(ctx context.Context, url string, log *slog.Logger) (*openedStore, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, usageError{fmt.Errorf("-store is not a valid Postgres URL")}
	}
	pgstore.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := pgstore.Migrate(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	store := pgstore.New(pool)
	reaping, stop := context.WithCancel(ctx)
	var reaper sync.WaitGroup
	reaper.Go(func() { // deletes expired records; one of all workers works at a time
		err := pgstore.NewReaper(store, pgstore.ReaperConfig{Logger: log}).Run(reaping)
		if err != nil {
			log.Error("expired records are not deleted", "error", idem.ErrorText(err))
		}
	})
	return &openedStore{Store: store, pools: []*pgxpool.Pool{pool}, close: func() {
		stop()
		reaper.Wait()
		pool.Close()
	}}, nil
}

// redisLog logs the messages of go-redis, one for every failed connection, at level debug. The
// consumer logs an outage of the store once.
type redisLog struct{ log *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, fmt.Sprintf(format, v...))
}
