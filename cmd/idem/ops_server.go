package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"github.com/idem-go/idem/ops"
)

// opsServer serves the page.
type opsServer struct {
	app      *app
	page     *ops.Handler
	handler  http.Handler
	tls      *tls.Config // nil for HTTP
	log      *slog.Logger
	loopback bool // persons do not sign in
	ends     atomic.Bool
}

// maxConnections bounds the connections at once. Further ones wait.
const maxConnections = 256

var errEnds = errors.New("the page is being closed")

func (s *opsServer) ready() error {
	if s.ends.Load() {
		return errEnds
	}
	return nil
}

// run serves until ctx ends.
func (s *opsServer) run(ctx context.Context, f *opsFlags) (err error) {
	defer func() { err = errors.Join(err, s.closePage(ctx)) }()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer l.Close()
	if s.loopback && !isLoopbackAddress(l.Addr().String()) {
		return usage("--listen %s is %s, which is not a loopback address", f.listen, l.Addr())
	}
	stopHealth, err := serveHealth(ctx, f.health, s.app.ready(s.ready), s.log)
	if err != nil {
		return fmt.Errorf("--health: %w", err)
	}
	defer stopHealth()
	if err := s.print("started", l.Addr().String(), f.prefix); err != nil {
		return err
	}
	return errors.Join(s.serve(ctx, l), s.print("stopped", l.Addr().String(), f.prefix))
}

func (s *opsServer) serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s.handler, TLSConfig: s.tls,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second,
		WriteTimeout: 90 * time.Second, // the doctor and plans take their time
		IdleTimeout:  2 * time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() {
		limited := netutil.LimitListener(l, maxConnections)
		if s.tls == nil {
			failed <- server.Serve(limited)
		} else {
			failed <- server.ServeTLS(limited, "", "")
		}
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("the server has failed: %w", err)
	case <-ctx.Done():
	}
	s.ends.Store(true)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), opsStop)
	defer cancel()
	if err := server.Shutdown(stop); err != nil {
		s.log.Warn("requests were cut off", "error", err)
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("the server has failed: %w", err)
	}
	return nil
}

// closePage waits for a replay, which finishes its present dead letter.
func (s *opsServer) closePage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opsStop)
	defer cancel()
	return s.page.Close(ctx)
}

func (s *opsServer) print(event, address, prefix string) error {
	url := "http://" + address + prefix
	if s.tls != nil {
		url = "https://" + address + prefix
	}
	if s.app.output == "json" {
		text, err := json.Marshal(map[string]any{"ops": event, "url": url})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(s.app.stdout, string(text))
		return err
	}
	_, err := fmt.Fprintln(s.app.stdout, plain("ops page "+event+": "+url))
	return err
}
