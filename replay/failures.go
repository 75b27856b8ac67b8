package replay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// Failed is an event that was given up. Key and Error may have control characters: quote both
// before they reach a terminal.
type Failed struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	// Key is zero if the record has no valid identity.
	Key dedup.Key `json:"key,omitzero"`
	// Class and Error are the reason. They are empty for an event of an earlier run.
	Class idem.Class `json:"class,omitempty"`
	Error string     `json:"error,omitempty"`
	// Earlier is set for an event that was given up before this run. An interrupted run of the same
	// replay gave it up or, with SameScope, the group. The store has the reason.
	Earlier bool      `json:"earlier,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// maxEarlier bounds the listed events of earlier runs.
const maxEarlier = 1000

// failures is the producer of a replay: it publishes dead letters if there is a topic, and lists
// them. Safe for concurrent use.
type failures struct {
	limit int

	mu      sync.Mutex
	to      idem.Producer // nil: list only
	stop    func(error)   // ends the run
	taken   int           // events given up, or about to be
	earlier int
	list    []Failed
}

// begin prepares a run.
func (f *failures) begin(to idem.Producer, stop func(error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to, f.stop, f.taken, f.earlier, f.list = to, stop, 0, 0, nil
}

// all returns the events of the run.
func (f *failures) all() []Failed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.list)
}

// Produce implements [idem.Producer]. The processor publishes dead letters only, because no handler
// of a replay has delayed retries.
func (f *failures) Produce(ctx context.Context, msgs ...*idem.Message) error {
	for _, m := range msgs {
		to, err := f.take()
		if err != nil {
			return err
		}
		if to != nil {
			if err := to.Produce(ctx, m); err != nil {
				f.giveBack()
				return err
			}
		}
		f.add(failedOf(m))
	}
	return nil
}

// failedOf describes a dead letter. One that cannot be read is listed too, with the reason.
func failedOf(m *idem.Message) Failed {
	e, err := deadletter.Parse(m)
	if err != nil {
		return Failed{Topic: m.Topic, Error: err.Error(), At: time.Now().UTC()}
	}
	return Failed{
		Topic: e.Message.Topic, Partition: e.Message.Partition, Offset: e.Message.Offset, Key: e.Key,
		Class: e.Class, Error: e.Error, At: time.Now().UTC(),
	}
}

// take reserves a place for one event more, or ends the run.
func (f *failures) take() (to idem.Producer, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.taken >= f.limit {
		err := fmt.Errorf("%w: more than %d", ErrTooManyFailed, f.limit)
		f.stop(err)
		return nil, err
	}
	f.taken++
	return f.to, nil
}

func (f *failures) giveBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken--
}

func (f *failures) add(one Failed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, one)
}

// addEarlier lists an event that an earlier run has given up.
func (f *failures) addEarlier(m *idem.Message, key dedup.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.earlier == maxEarlier {
		return
	}
	f.earlier++
	f.list = append(f.list, Failed{
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Key: key, Earlier: true,
	})
}
