package idem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// payload is the type of events for the handlers of these tests.
type payload struct {
	EventID string `json:"event_id"`
	Type    string `json:"type"`
	Amount  int    `json:"amount"`
}

// message is a record of type "paid" at the given offset.
func message(id string, offset int64) *idem.Message {
	return &idem.Message{
		Topic: "orders", Partition: 1, Offset: offset, Key: []byte("k"), Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Value: fmt.Appendf(nil, `{"event_id":%q,"type":"paid","amount":7}`, id),
	}
}

// journal has the steps of a test, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.lines...)
}

func (j *journal) count(line string) (n int) {
	for _, l := range j.all() {
		if l == line {
			n++
		}
	}
	return n
}

// spy is a store that writes its calls into a journal and can fail.
type spy struct {
	*memstore.Store
	*journal

	mu     sync.Mutex
	claims int   // calls
	sizes  []int // of them
	anyAge bool  // of the last request

	claimErr, completeErr, releaseErr, renewErr func() error // before the real call
	claimLate                                   func() error // after it: the answer is lost
	claimAnswer                                 func(*dedup.Answer)
	pingErr                                     error
}

func (s *spy) Claim(ctx context.Context, t dedup.Token, lease time.Duration, r []dedup.Request, a []dedup.Answer) error {
	s.mu.Lock()
	s.claims++
	s.sizes = append(s.sizes, len(r))
	s.anyAge = r[len(r)-1].AnyAge
	s.mu.Unlock()
	if err := call(s.claimErr); err != nil {
		s.add("claim: %v", err)
		return err
	}
	if err := s.Store.Claim(ctx, t, lease, r, a); err != nil {
		return err
	}
	if s.claimAnswer != nil {
		s.claimAnswer(&a[0])
	}
	s.add("claim: %s", a[0].Verdict)
	if err := call(s.claimLate); err != nil {
		clear(a)
		return err
	}
	return nil
}

func (s *spy) Renew(ctx context.Context, lease time.Duration, c []dedup.Claim) error {
	if err := call(s.renewErr); err != nil {
		return err
	}
	return s.Store.Renew(ctx, lease, c)
}

func (s *spy) Complete(ctx context.Context, c []dedup.Completion) error {
	if err := call(s.completeErr); err != nil {
		s.add("complete: %v", err)
		return err
	}
	err := s.Store.Complete(ctx, c)
	for i := range c {
		switch {
		case errors.Is(err, dedup.ErrClaimLost):
			s.add("complete: lost")
		case c[i].Dead != "":
			s.add("complete: dead")
		default:
			s.add("complete: done")
		}
	}
	return err
}

func (s *spy) Release(ctx context.Context, c []dedup.Release) error {
	if err := call(s.releaseErr); err != nil {
		return err
	}
	for i := range c {
		s.add("release: %s", [...]string{"unstarted", "failed", "unknown"}[c[i].Outcome])
	}
	return s.Store.Release(ctx, c)
}

func (s *spy) Ping(context.Context) error              { return s.pingErr }
func (s *spy) Check(context.Context) ([]string, error) { return nil, nil }

func call(f func() error) error {
	if f == nil {
		return nil
	}
	return f()
}

// times returns a function that fails n times.
func times(n int, err error) func() error {
	return func() error {
		if n--; n >= 0 {
			return err
		}
		return nil
	}
}

// outbox is a Producer that keeps its messages.
type outbox struct {
	*journal
	mu   sync.Mutex
	msgs []*idem.Message
	fail func(*idem.Message) error
}

func (o *outbox) Produce(_ context.Context, msgs ...*idem.Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range msgs {
		if o.fail != nil {
			if err := o.fail(m); err != nil {
				return err
			}
		}
		o.msgs = append(o.msgs, m)
		o.add("dead letter: %s", headerOf(m, deadletter.HeaderErrorClass))
	}
	return nil
}

func (o *outbox) deadLetters() []*idem.Message {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]*idem.Message(nil), o.msgs...)
}

func headerOf(m *idem.Message, name string) string {
	for _, h := range m.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// bench is a processor with all around it in the hands of the test.
type bench struct {
	*journal
	t      testing.TB
	store  *spy
	sent   *outbox
	router *idem.Router
	cfg    idem.Config
	log    *strings.Builder
	p      *idem.Processor
}

func newBench(t testing.TB) *bench {
	j := &journal{}
	b := &bench{journal: j, t: t, router: idem.NewRouter(), log: &strings.Builder{}}
	b.store = &spy{Store: memstore.New(), journal: j}
	b.sent = &outbox{journal: j}
	b.cfg = idem.Config{
		Store: b.store, Scope: "g", Producer: b.sent, Lease: 10 * time.Second, BusyWait: idem.Forever,
		Logger: slog.New(slog.NewTextHandler(&locked{w: b.log}, nil)),
	}
	return b
}

// locked makes a writer safe for concurrent use.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// on registers a claimed handler that writes "run" and then does fn.
func (b *bench) on(fn func(context.Context, idem.Event[payload]) error, opts ...idem.Option) {
	idem.On(b.router, "paid", func(ctx context.Context, e idem.Event[payload]) error {
		b.add("run %d", e.Attempt)
		return fn(ctx, e)
	}, opts...)
}

// start makes the processor; it is closed with the test.
func (b *bench) start() *idem.Processor {
	p, err := idem.NewProcessor(b.router, b.cfg)
	require.NoError(b.t, err)
	b.p = p
	return p
}

// succeed is a handler without trouble.
func succeed(context.Context, idem.Event[payload]) error { return nil }

// failing returns a handler that fails n times and then succeeds.
func failing(n int, err error) func(context.Context, idem.Event[payload]) error {
	f := times(n, err)
	return func(context.Context, idem.Event[payload]) error { return f() }
}
