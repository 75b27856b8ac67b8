package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// serveHealth answers /healthz while the process runs and /readyz while the worker can work. With
// an empty address there is no server. stop waits until the server has ended.
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
	srv := &http.Server{Handler: healthHandler(ready), ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("health server failed", "error", err)
		}
	}()
	log.Info("health server listens", "address", l.Addr().String())
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
		<-done
	}, nil
}

func healthHandler(ready http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz",
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.Handle("GET /readyz", ready)
	return mux
}
