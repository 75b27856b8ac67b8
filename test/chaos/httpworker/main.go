// Command httpworker is a server for the tests of package chaos: POST /orders has one effect for
// each idempotency key, claimed in a Redis or in the transaction of a Postgres. Effects are rows of
// the table effects in any case. A request may name the step at which the process is to be killed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/httpidem"
)

func main() {
	if err := run(context.Background()); err != nil {
		slog.Error("failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	redisURL, prefix := flag.String("redis", "", "store of claims; without it requests are in transactions"), flag.String("prefix", "", "")
	url, lease := flag.String("postgres", "", ""), flag.Duration("lease", time.Second, "")
	flag.Parse()
	cfg, err := pgxpool.ParseConfig(*url)
	if err != nil {
		return err
	}
	cfg.MaxConns = 16
	pgstore.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	c := httpidem.Config{Scope: "orders", Public: true, Secret: []byte("the same in all instances"), Lease: *lease}
	var m *httpidem.Middleware
	var effect func(context.Context) execer
	if *redisURL != "" {
		opts, err := redis.ParseURL(*redisURL)
		if err != nil {
			return err
		}
		client := redis.NewClient(opts)
		defer client.Close()
		c.Store = &doomed{Store: redisstore.New(client, redisstore.Prefix(*prefix))}
		m, err = httpidem.New(c)
		if err != nil {
			return err
		}
		effect = func(context.Context) execer { return pool }
	} else {
		s := pgstore.New(pool)
		c.Store = &doomedTx{doomed: doomed{Store: s}, tx: s}
		if m, err = httpidem.NewTx[pgx.Tx](c); err != nil {
			return err
		}
		effect = func(ctx context.Context) execer {
			tx, _ := httpidem.TxFrom[pgx.Tx](ctx)
			return tx
		}
	}
	defer m.Close()
	return serve(ctx, m.Handler(order(effect)))
}

type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func order(effect func(context.Context) execer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, key := r.Context(), httpidem.KeyFrom(r.Context())
		die(ctx, "before the effect")
		if _, err := effect(ctx).Exec(ctx, "INSERT INTO effects (key, pid) VALUES ($1, $2)", key, os.Getpid()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		die(ctx, "after the effect")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "%s by %d", key, os.Getpid())
	})
}

// serve prints its address, and serves until the process is killed. The context of a request has
// the step at which the process dies.
func serve(ctx context.Context, h http.Handler) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("addr=" + l.Addr().String())
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), doom{}, r.Header.Get("X-Die"))))
	})}
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// doom is the step at which a request wants the process to die.
type doom struct{}

// die ends the process as kill -9 does, if that is the step.
func die(ctx context.Context, step string) {
	if ctx.Value(doom{}) == step {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal may take a moment
	}
}

// doomed is a store. The process may die before and after its calls.
type doomed struct{ dedup.Store }

func (d *doomed) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer) error {
	die(ctx, "before the claim")
	err := d.Store.Claim(ctx, t, lease, reqs, answers)
	die(ctx, "after the claim")
	return err
}

func (d *doomed) Complete(ctx context.Context, done []dedup.Completion) error {
	die(ctx, "before the end")
	err := d.Store.Complete(ctx, done)
	die(ctx, "after the end")
	return err
}

// doomedTx is the same of transactions: the end is the commit.
type doomedTx struct {
	doomed
	tx dedup.TxStore[pgx.Tx]
}

func (d *doomedTx) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(pgx.Tx) ([]dedup.Completion, error)) error {
	die(ctx, "before the claim")
	err := d.tx.ClaimTx(ctx, limit, reqs, answers, func(tx pgx.Tx) ([]dedup.Completion, error) {
		die(ctx, "after the claim")
		done, err := fn(tx)
		die(ctx, "before the end")
		return done, err
	})
	die(ctx, "after the end")
	return err
}
