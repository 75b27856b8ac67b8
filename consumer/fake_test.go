package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/runner"
)

// fakeSession records marks and commits, as sarama's session does: the greatest mark of a partition
// counts.
type fakeSession struct {
	ctx    context.Context
	claims map[string][]int32
	hang   chan struct{} // if not nil, Commit waits for it

	mu        sync.Mutex
	marks     map[runner.TopicPartition]int64
	committed map[runner.TopicPartition]int64
	commits   int
	marked    func(runner.TopicPartition, int64) // called with every mark
}

func newFakeSession(ctx context.Context, claims map[string][]int32) *fakeSession {
	return &fakeSession{ctx: ctx, claims: claims, marks: map[runner.TopicPartition]int64{}, committed: map[runner.TopicPartition]int64{}}
}

func (s *fakeSession) Claims() map[string][]int32 { return s.claims }
func (s *fakeSession) MemberID() string           { return "member" }
func (s *fakeSession) GenerationID() int32        { return 1 }
func (s *fakeSession) Context() context.Context   { return s.ctx }

func (s *fakeSession) MarkMessage(*sarama.ConsumerMessage, string) { panic("never per message") }
func (s *fakeSession) ResetOffset(string, int32, int64, string)    { panic("never in a claim") }

func (s *fakeSession) MarkOffset(topic string, id int32, offset int64, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := runner.TopicPartition{Topic: topic, Partition: id}
	s.marks[p] = max(s.marks[p], offset)
	if s.marked != nil {
		s.marked(p, offset)
	}
}

func (s *fakeSession) Commit() {
	if s.hang != nil {
		<-s.hang
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits++
	for p, offset := range s.marks {
		s.committed[p] = offset
	}
}

func (s *fakeSession) offset(topic string, id int32) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.committed[runner.TopicPartition{Topic: topic, Partition: id}]
}

// fakeClaim is a partition with messages that a test sends.
type fakeClaim struct {
	topic    string
	id       int32
	messages chan *sarama.ConsumerMessage
}

func newFakeClaim(topic string, id int32, buffer int) *fakeClaim {
	return &fakeClaim{topic: topic, id: id, messages: make(chan *sarama.ConsumerMessage, buffer)}
}

func (c *fakeClaim) Topic() string                            { return c.topic }
func (c *fakeClaim) Partition() int32                         { return c.id }
func (c *fakeClaim) InitialOffset() int64                     { return 0 }
func (c *fakeClaim) HighWaterMarkOffset() int64               { return 1000 }
func (c *fakeClaim) Messages() <-chan *sarama.ConsumerMessage { return c.messages }

func (c *fakeClaim) record(offset int64) *sarama.ConsumerMessage {
	return &sarama.ConsumerMessage{
		Topic: c.topic, Partition: c.id, Offset: offset, Value: []byte(`{}`),
		Headers: []*sarama.RecordHeader{{Key: []byte("event-id"), Value: fmt.Appendf(nil, "%s-%d-%d", c.topic, c.id, offset)}},
	}
}

// pausingClaim is a claim that can stop fetching, as sarama's own.
type pausingClaim struct {
	*fakeClaim
	mu     sync.Mutex
	paused bool
	pauses int
}

func (c *pausingClaim) everPaused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pauses > 0
}

func (c *pausingClaim) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = true
	c.pauses++
}

func (c *pausingClaim) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = false
}

func (c *pausingClaim) IsPaused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// newHandler returns a handler that gives every message to fn. Its store is a fresh one in memory.
func newHandler(t *testing.T, cfg Config, fn func(context.Context, *idem.Message) error) *GroupHandler {
	t.Helper()
	r := idem.NewRouter(idem.Type(idem.Fixed("thing")), idem.ID(idem.FromHeader("event-id")))
	idem.On(r, "thing", func(ctx context.Context, e idem.Event[struct{}]) error { return fn(ctx, e.Message) })
	cfg.Group = "g"
	cfg.Store = memstore.New(memstore.Volatile())
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	h, err := NewGroupHandler(cfg, r)
	require.NoError(t, err)
	return h
}

// running is a claim under way.
type running struct {
	done chan struct{}
	err  error
}

func consume(h *GroupHandler, sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) *running {
	r := &running{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = h.ConsumeClaim(sess, claim)
	}()
	return r
}

func (r *running) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

var (
	errTest = errors.New("test")
	pause   = runner.Pause
)
