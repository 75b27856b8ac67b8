package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/ops"
	"github.com/idem-go/idem/ops/doctor"
)

// opsPath is the path of the page.
const opsPath = "/idem/"

// loopbackAddress reports whether an address belongs to this machine only. The page of this example
// has no authentication.
func loopbackAddress(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// servePage serves the ops page at a loopback address and returns its URL. stop waits until the
// server has ended.
func servePage(
	ctx context.Context, addr string, cfg ops.Config, log *slog.Logger,
) (stop func(), url string, err error) {
	cfg.Loopback, cfg.AllowReplay, cfg.Prefix, cfg.Logger = true, true, opsPath, log
	page, err := ops.NewHandler(cfg)
	if err != nil {
		return nil, "", err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, "", errors.Join(err, page.Close(ctx))
	}
	mux := http.NewServeMux()
	mux.Handle(opsPath, page)
	mux.Handle("GET /{$}", http.RedirectHandler(opsPath, http.StatusSeeOther))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("ops page failed", "error", err)
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
		if err := page.Close(ctx); err != nil {
			log.Warn("ops page", "error", err)
		}
		<-done
	}, fmt.Sprintf("http://%s%s", l.Addr(), opsPath), nil
}

// servePage serves the page of a worker if -ops is set, and adds the page's observer to the worker.
func (o *options) servePage(
	ctx context.Context, cfg *consumer.Config, l *openedStore,
) (stop func(), err error) {
	if o.ops == "" {
		return func() {}, nil
	}
	cfg.Observers = append(cfg.Observers, ops.NewMonitor())
	page := ops.Config{Consumer: *cfg}
	page.Consumer.Scope = scope // of the handlers, see newRouter
	page.Doctor = doctor.New(doctor.Config{
		Consumer: page.Consumer, Pools: l.pools, Redis: l.redis, Memory: o.store == "memory",
		Retention: o.retention,
	})
	stop, url, err := servePage(ctx, o.ops, page, o.log)
	if err == nil {
		o.log.InfoContext(ctx, "ops page", "url", url)
	}
	return stop, err
}
