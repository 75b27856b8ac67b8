package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

// schemas is a Decoder that asks a service of the test for a schema, once, and keeps it.
type schemas struct {
	mu     sync.Mutex
	known  map[string]bool // by header "schema"
	asked  int             // calls that went to the service
	calls  int             // of Decode with success
	during func()          // while the service is asked
	answer func(schema string) error
	ping   func() error
}

func newSchemas() *schemas { return &schemas{known: map[string]bool{}} }

func (s *schemas) String() string { return "registry of the test" }

func (s *schemas) Ping(context.Context) error { return call(s.ping) }

func (s *schemas) Decode(ctx context.Context, m *idem.Message, into any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if schema := headerOf(m, "schema"); !s.known[schema] {
		if ctx.Err() != nil {
			return fmt.Errorf("schema %s is not known yet: %w", schema, ctx.Err())
		}
		if s.asked++; s.during != nil {
			s.during()
		}
		if s.answer != nil {
			if err := s.answer(schema); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("ask for schema %s: %w", schema, err)
		}
		s.known[schema] = true
	}
	s.calls++
	return json.Unmarshal(m.Value, into)
}

var errRegistryDown = errors.New("registry does not answer")

// downFor lets the service be unavailable for so many calls.
func (s *schemas) downFor(n int) *schemas {
	down := times(n, idem.Unavailable(errRegistryDown))
	s.answer = func(string) error { return down() }
	return s
}

// withSchema is a message with ID and type in headers, so that neither needs the decoder.
func withSchema(id string, offset int64, schema string) *idem.Message {
	m := message(id, offset)
	m.Headers = []idem.Header{
		{Key: "event-id", Value: []byte(id)}, {Key: "event-type", Value: []byte("paid")},
		{Key: "schema", Value: []byte(schema)},
	}
	return m
}

// decoderForms run a test with each kind of handler.
func decoderForms(t *testing.T, f func(t *testing.T, b *bench, on func(note func(idem.Event[payload]), opts ...idem.Option))) {
	for form, register := range handlerForms {
		t.Run(form, func(t *testing.T) {
			inGroupBubble(t, func(t *testing.T, b *bench, _ *groupStore) {
				f(t, b, func(note func(idem.Event[payload]), opts ...idem.Option) { register(b, note, opts...) })
			})
		})
	}
}

// hang waits until the context of the call would have ended.
func hang() { time.Sleep(idem.ReadTimeout + time.Millisecond) }
