package consumer

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// trouble turns a stream of errors into changes of state: one line when something begins to fail, one when it is over.
type trouble struct {
	log  *slog.Logger
	text func(error) string

	mu    sync.Mutex
	since time.Time
	last  time.Time // when begin was last told
	told  map[string]time.Time
}

// begin tells that the group cannot be consumed now. What only a person mends is told again, once a minute.
func (t *trouble) begin(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var gone *TopicError
	person := errors.As(err, &gone) || isAny(err, ErrUnauthorized, sarama.ErrTopicAuthorizationFailed, sarama.ErrGroupAuthorizationFailed)
	now := time.Now()
	switch {
	case t.since.IsZero():
		t.since, t.last = now, now
		t.log.Warn("cannot consume, will go on trying", "error", t.text(err))
	case person && now.Sub(t.last) >= detailEvery:
		t.last = now
		t.log.Warn("still cannot consume, will go on trying", "for", now.Sub(t.since).Round(time.Second), "error", t.text(err))
	}
}

// over tells that it can be consumed again.
func (t *trouble) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.since.IsZero() {
		t.log.Info("consuming again", "after", time.Since(t.since).Round(time.Millisecond))
		t.since = time.Time{}
	}
}

// detailEvery is how often the same error of sarama's background work is told.
const detailEvery = time.Minute

// detail tells an error of sarama's background work, the same one once a minute at most.
func (t *trouble) detail(err error) {
	what := t.text(err)
	attrs := []any{"error", what}
	var partition *sarama.ConsumerError
	if errors.As(err, &partition) {
		what = t.text(partition.Err) // the same for all partitions
		attrs = []any{"error", what, "topic", partition.Topic, "partition", partition.Partition}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(t.told[what]) < detailEvery {
		return
	}
	if t.told == nil || len(t.told) >= 100 { // texts hold addresses: bounded all the same
		t.told = make(map[string]time.Time)
	}
	t.told[what] = now
	t.log.Warn("sarama", attrs...)
}
