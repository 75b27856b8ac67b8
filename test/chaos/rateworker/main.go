// Command rateworker measures for the tests of package chaos at which rate events of healthy Kafka
// keys take effect. It is a program of its own because a test binary with the race detector
// measures the race detector.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/lane"
)

func main() {
	var c config
	flag.StringVar(&c.postgres, "postgres", "", "")
	flag.StringVar(&c.kind, "kind", "", "tx for OnTx, on for On")
	flag.IntVar(&c.run, "run", 0, "number of the first run in the table effects")
	flag.IntVar(&c.events, "events", 0, "")
	flag.Uint64Var(&c.seed, "seed", 0, "")
	flag.Parse()
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	with, without, err := c.compare(ctx)
	stop()
	if err != nil {
		slog.Error("failed", "error", err)
		os.Exit(1)
	}
	fmt.Printf("%.0f %.0f\n", with, without)
}

const keys, bad = 200, 10

// event is the Seq-th event of all.
type event struct {
	Key int `json:"key"`
	Seq int `json:"seq"`
}

type config struct {
	postgres, kind string
	run, events    int
	failing        bool // one event in five of the bad keys fails in the first attempt
	seed           uint64
}

// compare returns the rates with and without failures. A first run is not measured: it opens the
// connections and prepares the statements.
func (c config) compare(ctx context.Context) (with, without float64, err error) {
	cfg, err := pgxpool.ParseConfig(c.postgres)
	if err != nil {
		return 0, 0, err
	}
	cfg.MaxConns = 16
	pgstore.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return 0, 0, err
	}
	defer pool.Close()
	first := c
	first.failing, first.events = true, c.events/4
	_, err = first.measure(ctx, pool)
	if err == nil {
		c.run++
		without, err = c.measure(ctx, pool)
	}
	if err == nil {
		c.run, c.failing = c.run+1, true
		with, err = c.measure(ctx, pool)
	}
	return with, without, err
}

// measure returns at which rate the events of the other keys take effect, by second.
func (c config) measure(ctx context.Context, pool *pgxpool.Pool) (rate float64, err error) {
	var failed, runs atomic.Int64
	r := c.router(pool, &failed, &runs)
	p, err := idem.NewProcessor(r, idem.Config{
		Store: pgstore.New(pool), Scope: fmt.Sprintf("rate-%s-%d", c.kind, c.run), BusyWait: idem.Forever,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	p.Assigned("t", 0)
	msgs, others := c.messages()
	l := lane.New(p, "t", 0, lane.Config{Lanes: 8})
	began := time.Now()
	for _, m := range msgs {
		if err := l.Push(ctx, m); err != nil {
			return 0, err
		}
	}
	for n := 0; n < others; {
		if runs.Load() < int64(others) { // counting the effects slows the measured work
			time.Sleep(5 * time.Millisecond)
			continue
		}
		const count = `SELECT count(*) FROM effects WHERE run = $1 AND key >= $2`
		if err := pool.QueryRow(ctx, count, c.run, bad).Scan(&n); err != nil {
			return 0, err
		}
	}
	took := time.Since(began)
	if err := l.Close(ctx, nil); err != nil {
		return 0, err
	}
	if c.failing != (failed.Load() > 0) {
		return 0, fmt.Errorf("%d attempts failed", failed.Load())
	}
	return float64(others) / took.Seconds(), nil
}

func (c config) messages() (msgs []*idem.Message, others int) {
	rng := rand.New(rand.NewPCG(c.seed, 0))
	msgs = make([]*idem.Message, c.events)
	for i := range msgs {
		key := rng.IntN(keys)
		if key >= bad {
			others++
		}
		msgs[i] = &idem.Message{
			Topic: "t", Offset: int64(i), Key: fmt.Append(nil, key), Time: time.Now(),
			Value: fmt.Appendf(nil, `{"event_id":"%d-%d","key":%d,"seq":%d}`, c.run, i, key, i),
		}
	}
	return msgs, others
}

// router counts the failed attempts, and the attempts for the other keys.
func (c config) router(pool *pgxpool.Pool, failed, runs *atomic.Int64) *idem.Router {
	r := idem.NewRouter(
		idem.Type(idem.Fixed("e")), idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.KeyOrdered(time.Second, 5*time.Second),
	)
	fails := func(e idem.Event[event]) error {
		if e.Data.Key >= bad {
			runs.Add(1)
		}
		if c.failing && e.Data.Key < bad && e.Attempt == 1 && e.Data.Seq%5 == 0 {
			failed.Add(1)
			return errors.New("boom")
		}
		return nil
	}
	const insert = `INSERT INTO effects VALUES ($1, $2, $3)`
	if c.kind == "tx" {
		idem.OnTx(r, "e", func(ctx context.Context, tx pgx.Tx, e idem.Event[event]) error {
			_, err := tx.Exec(ctx, insert, c.run, e.Data.Key, e.Data.Seq)
			return errors.Join(err, fails(e))
		})
		return r
	}
	idem.On(r, "e", func(ctx context.Context, e idem.Event[event]) error {
		if err := fails(e); err != nil {
			return err
		}
		_, err := pool.Exec(ctx, insert, c.run, e.Data.Key, e.Data.Seq)
		return err
	})
	return r
}
