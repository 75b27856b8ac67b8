package cells

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/history"
)

// workerEnv, if set, makes the test binary a worker. The value is a spec in JSON.
const workerEnv = "IDEM_CELLS_WORKER"

// spec is the task of one worker.
type spec struct {
	Kind  kind
	Store store
	Step  step // of the fault
	Fault fault
	Armed bool // the fault happens in this worker
	Lease time.Duration

	Name    string // first or second
	Control string // the address of the test, for the cell
	Brokers string
	Topic   string // the group, the scope and the ID of the event have this name too
	Place   place
}

const (
	callLimit  = time.Second // of a handler, which a database adds some seconds to
	finalLimit = 40 * time.Second
)

// worker is one process.
type worker struct {
	spec
	fired atomic.Bool
	runs  atomic.Int64 // of the work, in this process
	log   *slog.Logger
}

func work(text string) error {
	w := &worker{log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if err := json.Unmarshal([]byte(text), &w.spec); err != nil {
		return err
	}
	slog.SetDefault(w.log)
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if w.Kind == relays {
		return w.relay(ctx)
	}
	s, err := w.Place.open(ctx, w)
	for end := time.Now().Add(finalLimit / 2); err != nil; s, err = w.Place.open(ctx, w) {
		if time.Now().After(end) { // a file may be locked: a supervisor starts the program again
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	defer s.close()
	if w.Kind.records() {
		return w.consume(ctx, s)
	}
	if err := w.call(ctx, s); err != nil || w.Store != inMemory {
		return err
	}
	w.Name = "second" // a later caller: the store lives in this process
	return w.call(ctx, s)
}

// tell posts to the test, and returns when the test has answered.
func (w *worker) tell(ctx context.Context, what string, values ...string) error {
	form := url.Values{"worker": {w.Name}}
	for i := 0; i < len(values); i += 2 {
		form.Set(values[i], values[i+1])
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.Control+"/"+what, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the test answers %s", resp.Status)
	}
	return nil
}

// at is called at each step. Once, at the step of the fault, the worker notifies the test, waits
// until the test lets it go on, and carries out its own part of the fault.
func (w *worker) at(s step) {
	if !w.Armed || w.Step != s || !w.fired.CompareAndSwap(false, true) {
		return
	}
	if err := w.tell(context.Background(), "reached"); err != nil {
		w.log.Error("tell the step", "error", err)
		return
	}
	if s.onTheWire() {
		return // the test holds the answer back, and has the fault
	}
	switch w.Fault {
	case kill:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal may take a moment
	case panics:
		panic("the fault of the cell")
	case hang:
		select {} // also after the end of the context
	case stop, // by the test
		cutBefore, cutAfter, restart, rebalance, kafkaRestart, copied, unsent, unacked:
	}
}

// did adds to the history of the cell, with the time of now.
func (w *worker) did(d history.Deed, fence uint64) {
	_ = w.tell(context.Background(), "did", append([]string{"deed", string(rune(d))}, stamp(fence)...)...) // the test has ended
}

// stamp has the fence of a deed and its time.
func stamp(fence uint64) []string {
	return []string{"fence", strconv.FormatUint(fence, 10), "at", strconv.FormatInt(time.Now().UnixNano(), 10)}
}

// asks notifies the test that the worker is about to claim.
func (w *worker) asks() {
	if w.Fault == copied || w.Fault == rebalance {
		_ = w.tell(context.Background(), "asks") // the test has ended
	}
}

// effect is the outside of a handler without a transaction: it is counted with its idempotency key.
// The result of the work is the name of the run, which no other run has.
func (w *worker) effect(ctx context.Context, key string, fence uint64) (run string, err error) {
	w.at(beforeEffect)
	run = w.newRun()
	if err := w.tell(ctx, "effect", append([]string{"key", key, "run", run}, stamp(fence)...)...); err != nil {
		return "", fmt.Errorf("%w: %w", errWork, err)
	}
	w.at(afterEffect)
	return run, nil
}

// effectTx is a row in the database of the store.
func (w *worker) effectTx(insert func(run string) error) (run string, err error) {
	w.at(beforeEffect)
	run = w.newRun()
	if err := insert(run); err != nil {
		return "", fmt.Errorf("%w: %w", errWork, err)
	}
	w.at(afterEffect)
	return run, nil
}

func (w *worker) newRun() string { return fmt.Sprintf("%s %d", w.Name, w.runs.Add(1)) }

// errWork is an error of the work itself, in contrast to one of Idem.
var errWork = errors.New("the work fails")

const eventType = "e"

type event struct {
	ID string `json:"event_id"`
}

// consume is a member of the group until SIGTERM.
func (w *worker) consume(ctx context.Context, s *opened) error {
	r := idem.NewRouter(idem.Type(idem.Fixed(eventType)), idem.Timeout(w.limit()))
	switch w.Kind {
	case on, careful:
		if w.Kind == careful {
			r = r.With(idem.WhenUncertain(idem.DeadLetterUncertain))
		}
		idem.On(r, eventType, func(ctx context.Context, e idem.Event[event]) error {
			_, err := w.effect(ctx, e.IdempotencyKey(), e.Fence())
			return err
		})
	case onBatch:
		idem.OnBatch(r, eventType, func(ctx context.Context, events []idem.Event[event]) error {
			for _, e := range events {
				if _, err := w.effect(ctx, e.IdempotencyKey(), e.Fence()); err != nil {
					return err
				}
			}
			return nil
		})
	default:
		s.handleTx(r, w)
	}
	c, err := consumer.New(consumer.Config{
		Brokers: []string{w.Brokers}, Group: w.Topic, Topics: []string{w.Topic}, ClientID: w.Name,
		Store: s.store, Lease: w.Lease, Grace: w.Lease * 3 / 2, CommitInterval: 100 * time.Millisecond,
		CreateDeadLetterTopics: &consumer.TopicSpec{}, Logger: w.log,
		Sarama: func(c *sarama.Config) {
			c.Consumer.MaxWaitTime = 100 * time.Millisecond
			c.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
		},
	}, r)
	if err != nil {
		return err
	}
	if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// told is the answer that a caller gets, and the result of a run if there is one.
type told struct {
	answer answer
	run    string
}

// call calls with one key until the answer is final, and posts the answer to the test.
func (w *worker) call(ctx context.Context, s *opened) error {
	var once func(context.Context) (told, error)
	switch w.Kind.base() {
	case do, doTx:
		g := dedup.NewGuard(s.store, dedup.GuardConfig{
			Lease: w.Lease, Poll: 100 * time.Millisecond, Rerun: w.Kind.reruns(),
		})
		defer g.Close()
		key := dedup.Key{Scope: w.Topic, Type: eventType, ID: w.Topic}
		if w.Kind.base() == do {
			once = func(ctx context.Context) (told, error) {
				run, _, err := dedup.Do(ctx, g, key, func(ctx context.Context) (string, error) {
					return w.effect(ctx, key.UUID(), 0)
				})
				return told{answerOf(err), run}, err
			}
		} else {
			once = func(ctx context.Context) (told, error) {
				run, err := s.doTx(ctx, g, key, w)
				return told{answerOf(err), run}, err
			}
		}
	default:
		server, err := serve(s, w)
		if err != nil {
			return err
		}
		defer server.close()
		once = server.send
	}
	ctx, cancel := context.WithTimeout(ctx, finalLimit)
	defer cancel()
	for {
		a, err := w.caught(ctx, once)
		if a.answer != noAnswer {
			w.log.Info("final", "answer", a.answer, "run", a.run, "error", err)
			return w.tell(ctx, "answer", "answer", string(a.answer), "run", a.run)
		}
		w.log.Info("again", "error", err)
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("no final answer: %w", err)
		}
	}
}

// caught turns a panic of the call into an answer, as a program with a recover does.
func (w *worker) caught(ctx context.Context, once func(context.Context) (told, error)) (a told, err error) {
	defer func() {
		if p := recover(); p != nil {
			a = told{answer: panicked}
		}
	}()
	return once(ctx)
}

// answerOf returns the final answer that an error is, or noAnswer: call again. An error that is
// untrue of the key, or that no page promises, is final too.
func answerOf(err error) answer {
	switch {
	case err == nil:
		return result
	case errors.Is(err, dedup.ErrUnknownOutcome):
		return unknown
	case errors.Is(err, dedup.ErrUnavailable), errors.Is(err, dedup.ErrUnknownCommit),
		errors.Is(err, dedup.ErrInFlight), errors.Is(err, dedup.ErrClaimLost), errors.Is(err, errWork):
		return noAnswer
	}
	return wrong
}

// answerOfResponse is the same for the answer of the middleware.
func answerOfResponse(status int, replayed bool, body []byte) answer {
	has := func(text string) bool { return bytes.Contains(body, []byte(text)) }
	switch {
	case replayed && status >= http.StatusInternalServerError && !has("handler_panicked"):
		return failed
	case status == http.StatusCreated:
		return result
	case has("unknown_outcome"):
		return unknown
	case has("handler_panicked"):
		return panicked
	case has("store_unavailable"), has("request_in_flight"), has("rolled_back"), has("not_run"), has(errWork.Error()):
		return noAnswer
	}
	return wrong
}

// limit is the time-out of a handler. The database ends the session of a transaction some seconds
// after that, so it is short there.
func (w *worker) limit() time.Duration {
	if w.Kind.inTx() {
		return callLimit
	}
	return 5 * w.Lease
}
