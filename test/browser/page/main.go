// Command page is the program that the browser tests look at: a consumer with its store in
// Postgres, and the ops page of both. Its handler posts each event to a provider, the HTTP server
// of the test. The answer of the provider decides about the result of the handler.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/ops"
	"github.com/idem-go/idem/ops/doctor"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// prefix is where the page is mounted.
const prefix = "/admin/idem/"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() { // the parent process holds the other end, and may die
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		slog.Error("failed", "error", idem.ErrorText(err))
		os.Exit(1)
	}
}

type options struct {
	brokers, postgres, topic, group, provider, title string
	signIn                                           string
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("page", flag.ContinueOnError)
	flags.StringVar(&o.brokers, "brokers", "", "Kafka brokers")
	flags.StringVar(&o.postgres, "postgres", "", "Postgres URL")
	flags.StringVar(&o.topic, "topic", "", "topic of the events")
	flags.StringVar(&o.group, "group", "", "consumer group")
	flags.StringVar(&o.provider, "provider", "", "URL that events are posted to")
	flags.StringVar(&o.title, "title", "", "beside the name of the group")
	flags.StringVar(&o.signIn, "sign-in", "", "value of the cookie of whoever is let in")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(o.postgres)
	if err != nil {
		return err
	}
	pgstore.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := errors.Join(pgstore.Migrate(ctx, pool), pgoutbox.Migrate(ctx, pool)); err != nil {
		return err
	}
	return o.serve(ctx, pool)
}

// serve consumes, and serves the page, until ctx ends. It prints the address on standard output.
func (o *options) serve(ctx context.Context, pool *pgxpool.Pool) error {
	monitor := ops.NewMonitor()
	settings := consumer.Config{
		Brokers: strings.Split(o.brokers, ","), Group: o.group, Topics: []string{o.topic}, Store: pgstore.New(pool),
		CommitInterval: 200 * time.Millisecond, CreateDeadLetterTopics: &consumer.TopicSpec{}, Observers: []observe.Observer{monitor},
		Lanes: 8, // one slow event holds up no others
	}
	router := o.router()
	c, err := consumer.New(settings, router)
	if err != nil {
		return err
	}
	page, err := ops.NewHandler(ops.Config{
		Consumer: settings, Monitor: monitor, Outbox: pgoutbox.New(pool), AllowReplay: true, Title: o.title, Auth: o.who, Prefix: prefix,
		Doctor: doctor.New(doctor.Config{Consumer: settings, Pools: []*pgxpool.Pool{pool}}),
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle(prefix, page)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) }) // until Close
	fmt.Printf("http://%s%s\n", listener.Addr(), prefix)
	err = c.Run(ctx)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = server.Close() // browsers keep connections open
	served.Wait()
	return errors.Join(err, page.Close(end))
}

// who lets in a request with the cookie of the test.
func (o *options) who(r *http.Request) (string, error) {
	c, err := r.Cookie("sign-in")
	if err != nil {
		return "", err
	}
	if c.Value != o.signIn {
		return "", errors.New("not signed in")
	}
	return "ada@example.com", nil
}

func (o *options) router() *idem.Router {
	// Some are held in flight for as long as a test needs them there.
	router := idem.NewRouter(idem.Timeout(10*time.Minute), idem.Retry(idem.RetryPolicy{MaxAttempts: 3, MinBackoff: 20 * time.Millisecond, MaxBackoff: 50 * time.Millisecond}))
	send := o.send()
	idem.On(router, "order.paid", send)
	idem.On(router, "order.shipped", send)
	idem.On(router, "invoice.sent", send, idem.Tenant(idem.FromHeader("tenant")))
	later := idem.Retry(idem.RetryPolicy{MaxAttempts: 1})
	idem.On(router, "mail.bounced", send, later, idem.RetryTopics(time.Second, time.Hour))
	idem.On(router, "account.closed", send, later, idem.KeyOrdered(time.Hour))
	return router
}

// payload is the value of an event. It is posted as it was understood.
type payload struct {
	Order    string `json:"order"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
}

// send returns a handler that posts events to the provider. Status 422 is a permanent error. Other
// failures are tried again.
func (o *options) send() func(context.Context, idem.Event[payload]) error {
	client := &http.Client{}
	return func(ctx context.Context, e idem.Event[payload]) error {
		body, err := json.Marshal(e.Data)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.provider, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", e.IdempotencyKey())
		req.Header.Set("Event", url.QueryEscape(e.ID))
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		switch {
		case err != nil:
			return err
		case resp.StatusCode == http.StatusUnprocessableEntity:
			return idem.Permanent(errors.New(string(text)))
		case resp.StatusCode >= 300:
			return errors.New(string(text))
		}
		return nil
	}
}
