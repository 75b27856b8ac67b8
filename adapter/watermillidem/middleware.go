package watermillidem

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem/dedup"
)

// produced is a message of a handler, as the store keeps it.
type produced struct {
	UUID     string            `json:"uuid"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Payload  []byte            `json:"payload"`
}

// Middleware returns a middleware of Watermill's router that runs a handler once for each message.
// The store of g keeps the messages that the handler returns. If the message comes again, as after
// a crash before they were published, the same messages are published again under the same UUIDs.
//
// key names the event. Nil stands for the name of the handler and the UUID of the message, which
// suffices if producers write the same UUID at each retry. A message without a UUID, or for which
// key fails, is an error.
//
// The errors are those of [dedup.Do], and make Watermill deliver the message again. After a crash
// in the middle of a handler the error is [dedup.ErrUnknownOutcome], unless
// [dedup.GuardConfig].Rerun allows a second run. Set Rerun for a handler that may repeat its
// effects.
//
// Put Middleware behind Watermill's Retry, so that a retry asks the store again.
func Middleware(
	g *dedup.Guard, key func(*message.Message) (dedup.Key, error),
) message.HandlerMiddleware {
	if key == nil {
		key = byUUID
	}
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			k, err := key(m)
			if err != nil {
				return nil, err
			}
			all, _, err := dedup.Do(m.Context(), g, k, func(ctx context.Context) ([]produced, error) {
				return run(ctx, h, m)
			})
			return messages(all), err // with an error Watermill publishes nothing
		}
	}
}

// byUUID is the default key.
func byUUID(m *message.Message) (dedup.Key, error) {
	name := message.HandlerNameFromCtx(m.Context())
	switch {
	case name == "":
		return dedup.Key{}, errors.New("watermillidem: the message has no handler name: use Middleware in a Router")
	case m.UUID == "":
		return dedup.Key{}, fmt.Errorf("watermillidem: a message of handler %s has no UUID: "+
			"pass a function to Middleware that finds the event ID", name)
	}
	return dedup.Key{Scope: name, ID: m.UUID}, nil
}

// run runs the handler with the context of the claim.
func run(ctx context.Context, h message.HandlerFunc, m *message.Message) ([]produced, error) {
	before := m.Context()
	m.SetContext(ctx)
	defer m.SetContext(before)
	out, err := h(m)
	if err != nil {
		return nil, err
	}
	all := make([]produced, len(out))
	for i, p := range out {
		all[i] = produced{p.UUID, p.Metadata, p.Payload}
	}
	return all, nil
}

func messages(all []produced) []*message.Message {
	var out []*message.Message
	for _, p := range all {
		m := message.NewMessage(p.UUID, p.Payload)
		for name, value := range p.Metadata {
			m.Metadata.Set(name, value)
		}
		out = append(out, m)
	}
	return out
}
