package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// ready answers with 200, or with 503 and the reason.
func (a *app) ready(ready func() error) http.Handler {
	type answer struct {
		Ready  bool   `json:"ready"`
		Reason string `json:"reason,omitempty"`
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		v := answer{Ready: true}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if err := ready(); err != nil {
			v = answer{Reason: a.redact(err.Error())}
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(v) // the prober has gone
	})
}

// serveHealth answers /healthz while the process runs and /readyz as ready does. With an empty
// address there is no server. stop waits until the server has ended.
func serveHealth(
	ctx context.Context, addr string, ready http.Handler, log *slog.Logger,
) (stop func(), err error) {
	if addr == "" {
		return func() {}, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc(
		"GET /healthz",
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) },
	)
	mux.Handle("GET /readyz", ready)
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("health server failed", "error", err)
		}
	})
	log.Info("health server", "address", l.Addr().String())
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
		running.Wait()
	}, nil
}
