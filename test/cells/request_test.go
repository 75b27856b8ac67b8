package cells

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idem/httpidem"
)

// server is a server with idempotency keys and its client, in one worker.
type server struct {
	m      *httpidem.Middleware
	http   *http.Server
	client *http.Client
	url    string
	key    string
	ended  chan struct{}
}

// serve listens on the loopback interface.
func serve(s *opened, w *worker) (*server, error) {
	cfg := httpidem.Config{
		Store: s.store, Scope: w.Topic, Public: true, Lease: w.Lease, Timeout: w.limit(),
		Secret: []byte("the same in all workers"), Logger: w.log, Rerun: w.Kind.reruns(),
	}
	v := &server{key: w.Topic, ended: make(chan struct{}), client: &http.Client{
		// A client that repeats requests by itself would hide their answers.
		Transport: &http.Transport{DisableKeepAlives: true},
	}}
	var effect func(context.Context) (run string, err error)
	var err error
	if w.Kind.inTx() {
		v.m, effect, err = s.newHTTPTx(cfg, w)
	} else {
		v.m, err = httpidem.New(cfg)
		effect = func(ctx context.Context) (string, error) { return w.effect(ctx, httpidem.ForwardKey(ctx), 0) }
	}
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	v.url = "http://" + l.Addr().String()
	v.http = &http.Server{ReadHeaderTimeout: time.Minute, Handler: v.m.Handler(http.HandlerFunc(
		func(rw http.ResponseWriter, r *http.Request) {
			run, err := effect(r.Context())
			if err != nil {
				http.Error(rw, err.Error(), http.StatusServiceUnavailable)
				return
			}
			rw.WriteHeader(http.StatusCreated)
			fmt.Fprint(rw, run)
		}))}
	go func() {
		defer close(v.ended)
		_ = v.http.Serve(l) // until close
	}()
	return v, nil
}

func (v *server) close() {
	_ = v.http.Close()
	<-v.ended
	v.m.Close()
}

// send sends the request once. The error has the text of any answer.
func (v *server) send(ctx context.Context) (told, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, v.url, strings.NewReader("{}"))
	if err != nil {
		return told{}, err
	}
	r.Header.Set("Idempotency-Key", v.key)
	resp, err := v.client.Do(r)
	if err != nil {
		return told{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return told{}, err
	}
	a := told{answer: answerOfResponse(resp.StatusCode, resp.Header.Get("Idempotent-Replayed") == "true", body)}
	if a.answer == result {
		a.run = string(body)
	}
	return a, fmt.Errorf("%s: %s", resp.Status, body)
}
