package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/examples/internal/telemetry"
	"github.com/idem-go/idem/examples/payments/provider"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

const (
	// connectTime is the time for which pgstore waits for a connection of the pool.
	connectTime = 10 * time.Second
	// drainTime is the time that running requests get when the server stops. No request takes
	// longer.
	drainTime = httpidem.DefaultWait + connectTime + handlerTime + 5*time.Second
)

// routes returns the routes of the API. Payments are idempotent by key; requests that only read
// need no key.
func routes(m *httpidem.Middleware, c *cashier, read reader) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /payments", m.Handler(http.HandlerFunc(c.create)))
	mux.HandleFunc("GET /payments", read.list)
	mux.HandleFunc("GET /healthz", read.health)
	return mux
}

// serve runs the API until ctx ends.
func (o options) serve(ctx context.Context) error {
	watch, endTelemetry, err := telemetry.Observe(ctx, "payments", o.log)
	if err != nil {
		return err
	}
	defer endTelemetry()
	pool, err := newPool(ctx, o.postgres, o.connections)
	if err != nil {
		return err
	}
	defer pool.Close()
	reading, err := newPool(ctx, o.postgres, 6)
	if err != nil {
		return err
	}
	defer reading.Close()
	if err := migrate(ctx, pool); err != nil {
		return err
	}
	if string(o.secret) == demoSecret {
		o.log.Warn("PAYMENTS_SECRET is not set: requests are compared by a public secret")
	}
	if o.provider == "" {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		o.provider = "http://" + l.Addr().String()
		o.log.Info("a fake provider runs in this process", "charges", o.provider+"/charges")
		failed := func(err error) {
			o.log.Error("the fake provider failed", "error", idem.ErrorText(err))
		}
		defer serveHTTP(l, provider.New(provider.ByCustomer), o.log, failed)()
	}
	client, err := newProviderClient(o.provider, o.providerTimeout, o.connections)
	if err != nil {
		return err
	}
	defer client.close()
	// its own pool, so that the relay does not wait for payments
	box := pgoutbox.New(reading, pgoutbox.Observers(watch))
	stop, err := publish(ctx, box, o.brokers, watch, o.log)
	if err != nil {
		return err
	}
	defer stop()
	store := pgstore.New(pool)
	m, err := newMiddleware(store, o.secret, watch.ObserveRequest, o.log)
	if err != nil {
		return err
	}
	defer m.Close()
	defer o.reap(ctx, store)()
	desk := &cashier{provider: client, completed: events{box, o.topic}.completed, log: o.log}
	return o.listenAndServe(ctx, o.listen, routes(m, desk, reader{reading}))
}

// serveFake runs the provider until ctx ends.
func (o options) serveFake(ctx context.Context) error {
	return o.listenAndServe(ctx, o.fake, provider.New(provider.ByCustomer))
}

func (o options) listenAndServe(ctx context.Context, addr string, h http.Handler) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	stop := serveHTTP(l, h, o.log, func(err error) { failed <- err })
	o.log.Info("listening", "address", l.Addr().String())
	select {
	case <-ctx.Done():
		o.log.Info("stopping: no new requests; running requests are finished")
	case err = <-failed:
	}
	stop()
	o.log.Info("stopped")
	return err
}

// serveHTTP serves h, and calls failed if serving ends with an error. stop lets running requests
// finish and waits for the end of the server.
func serveHTTP(l net.Listener, h http.Handler, log *slog.Logger, failed func(error)) (stop func()) {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10*time.Second + drainTime, // begins at the end of the request's headers
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			log.Warn("requests were cut short", "error", idem.ErrorText(err))
			_ = srv.Close()
		}
		<-done
	}
}

// reap deletes expired records. All processes run reap, and one at a time works. stop waits for the
// end of the run.
func (o options) reap(ctx context.Context, store *pgstore.Store) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var reaper sync.WaitGroup
	reaper.Go(func() {
		if err := pgstore.NewReaper(store,
			pgstore.ReaperConfig{WallClock: []string{scope}, Logger: o.log}).Run(ctx); err != nil {
			o.log.Error("expired records are not deleted", "error", idem.ErrorText(err))
		}
	})
	return func() {
		cancel()
		reaper.Wait()
	}
}
