// Command transfer is a bank behind HTTP that books each transfer once, with or without Redis and
// across crashes. README.md shows how to run the bank and explains the layers of protection.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/examples/internal/cli"
	"github.com/idem-go/idem/examples/internal/telemetry"
	"github.com/idem-go/idem/httpidem"
)

// frontConfig configures the middleware in front of the bank. The middleware spares the database
// the copies of a request and repeats answers byte for byte. The bank books once even without the
// middleware, which may therefore fail open.
func frontConfig(store dedup.Store, i identity, o options) httpidem.Config {
	return httpidem.Config{
		Store:     store,
		Scope:     "transfers/" + i.id,
		Principal: customer,
		Secret:    i.secret,
		// While Redis is down, requests go on. Few handlers may allow this; here the database
		// decides each key once.
		FailOpen: true,
		// After a crash the handler runs again, because the bank knows whether the transfer was
		// booked.
		Rerun: true,
		// A transfer takes milliseconds. Lease is the time for which a key stays busy after a
		// crash.
		Lease:   2 * time.Second,
		Timeout: requestTime,
		// A copy that comes meanwhile waits for the answer.
		Wait: httpidem.DefaultWait,
		Poll: 100 * time.Millisecond,
		// All anonymous customers share one limit.
		MaxLiveKeys: 1000,
		Logger:      o.log,
		Observe:     o.observe,
	}
}

// observe measures each request, and logs the key at level debug (-v).
func (o options) observe(ctx context.Context, e httpidem.Observation) {
	o.log.DebugContext(ctx, "request", "key", e.Key, "result", e.Result, "status", e.Status,
		"took", e.Took)
	if o.watch != nil {
		o.watch(ctx, e)
	}
}

// work serves until ctx ends, and then finishes the running requests.
func (o options) work(ctx context.Context) error {
	watch, endTelemetry, err := telemetry.Observe(ctx, "transfer", o.log)
	if err != nil {
		return err
	}
	defer endTelemetry()
	o.watch = watch.ObserveRequest
	pool, err := openPool(ctx, o.postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	i, err := o.prepare(ctx, pool)
	if err != nil {
		return err
	}
	client, err := o.openRedis(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	front, err := httpidem.New(frontConfig(redisstore.New(client), i, o))
	if err != nil {
		return err
	}
	defer front.Close()
	s := &service{bank: &bank{pool}, log: o.log}
	return o.serve(ctx, s.handler(front))
}

// The time-outs of the server. An answer may take the wait for another request, the work, and ten
// seconds in which the middleware tries to store the answer.
const (
	readTime     = 10 * time.Second
	writeTime    = 40 * time.Second
	shutdownTime = 30 * time.Second
)

func (o options) serve(ctx context.Context, h http.Handler) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: readTime, ReadTimeout: readTime, WriteTimeout: writeTime,
		IdleTimeout:    time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(o.log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	o.log.InfoContext(ctx, "listening", "address", l.Addr().String())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	err = srv.Shutdown(ending)
	if err != nil {
		_ = srv.Close() // the error of Shutdown is returned
	}
	if ended := <-served; err == nil && !errors.Is(ended, http.ErrServerClosed) {
		err = ended
	}
	o.log.InfoContext(ending, "stopped")
	return err
}

// openRedis succeeds without a Redis server. The time-outs are short, so that requests do not wait
// long for a server that is down.
func (o options) openRedis(ctx context.Context) (*redis.Client, error) {
	url := o.redis
	if !strings.Contains(url, "://") { // host:port
		url = "redis://" + url
	}
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("-redis: %w", err)
	}
	const limit = 250 * time.Millisecond
	opts.DialTimeout = cmp.Or(opts.DialTimeout, limit)
	opts.ReadTimeout = cmp.Or(opts.ReadTimeout, limit)
	opts.WriteTimeout = cmp.Or(opts.WriteTimeout, limit)
	opts.PoolTimeout = cmp.Or(opts.PoolTimeout, limit)
	opts.MaxRetries = cmp.Or(opts.MaxRetries, -1) // the middleware retries
	opts.DialerRetries = cmp.Or(opts.DialerRetries, 1)
	redis.SetLogger(redisLog{o.log})
	client := redis.NewClient(opts)
	asking, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	warnings, err := redisstore.New(client).Check(asking)
	if err != nil {
		warnings = append(warnings, err.Error())
	}
	for _, w := range warnings {
		o.log.WarnContext(ctx,
			"Redis is not set up as required; transfers are booked once nevertheless", "reason", w)
	}
	return client, nil
}

// redisLog logs the messages of go-redis, one for every failed connection, at level debug.
type redisLog struct{ log *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, fmt.Sprintf(format, v...))
}

type options struct {
	listen, postgres, redis string

	seed  int64
	log   *slog.Logger
	watch func(context.Context, httpidem.Observation)
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var verbose bool
	flags := flag.NewFlagSet("transfer", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`address` to serve at")
	flags.StringVar(&o.postgres, "postgres", "",
		"Postgres `URL` of the bank, whose missing tables are created; default $POSTGRES_URL")
	flags.StringVar(&o.redis, "redis", "",
		"Redis `URL` of the claims, or its host:port; default $REDIS_URL")
	flags.Int64Var(&o.seed, "seed", 0,
		"add accounts numbered 1 to `N` with 1,000.00 EUR each, where they are missing")
	flags.BoolVar(&verbose, "v", false, "log each request, with its key")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	// Not the defaults of the flags, because -help prints defaults and the URLs may hold passwords.
	o.postgres, o.redis = cmp.Or(o.postgres, os.Getenv("POSTGRES_URL")), cmp.Or(o.redis,
		os.Getenv("REDIS_URL"))
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	o.log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	var problem error
	switch {
	case flags.NArg() > 0:
		problem = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.postgres == "":
		problem = errors.New("-postgres is missing")
	case o.redis == "":
		problem = errors.New("-redis is missing; it need not be running")
	case o.seed < 0 || o.seed > maxSeed:
		problem = fmt.Errorf("-seed must be between 0 and %d", maxSeed)
	}
	return o, cli.Checked(flags, problem)
}

// run is the program. All output goes to stderr.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if err != nil {
		return cli.Usage(err)
	}
	return cli.Run(ctx, o.log, o.work)
}

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stderr))
}
