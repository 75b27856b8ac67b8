package watermillidem

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem/dedup"
)

// produced is a message of a handler, as the store keeps it. Metadata may have the headers of a
// record, which need not be UTF-8. JSON would replace such bytes, so they are kept in Raw.
type produced struct {
	UUID     string            `json:"uuid"`
	RawUUID  []byte            `json:"raw_uuid,omitempty"` // if it is not UTF-8
	Metadata map[string]string `json:"metadata,omitempty"`
	Raw      []rawPair         `json:"raw,omitempty"` // of the metadata, if not UTF-8
	Payload  []byte            `json:"payload"`
}

type rawPair struct {
	Name  []byte `json:"name"`
	Value []byte `json:"value"`
}

func newProduced(m *message.Message) produced {
	p := produced{UUID: m.UUID, Payload: m.Payload}
	if !utf8.ValidString(m.UUID) {
		p.RawUUID = []byte(m.UUID)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Metadata)) {
		value := m.Metadata[name]
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			p.Raw = append(p.Raw, rawPair{[]byte(name), []byte(value)})
			continue
		}
		if p.Metadata == nil {
			p.Metadata = make(map[string]string, len(m.Metadata))
		}
		p.Metadata[name] = value
	}
	return p
}

func (p *produced) message() *message.Message {
	uuid := p.UUID
	if p.RawUUID != nil {
		uuid = string(p.RawUUID)
	}
	m := message.NewMessage(uuid, p.Payload)
	for name, value := range p.Metadata {
		m.Metadata.Set(name, value)
	}
	for _, r := range p.Raw {
		m.Metadata.Set(string(r.Name), string(r.Value))
	}
	return m
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
			var own []*message.Message // with the values that the handler gave their contexts
			all, stored, err := dedup.Do(m.Context(), g, k, func(ctx context.Context) (all []produced, err error) {
				own, err = run(ctx, h, m)
				for _, p := range own {
					all = append(all, newProduced(p))
				}
				return all, err
			})
			if stored {
				own = nil
				for i := range all {
					own = append(own, all[i].message())
				}
			}
			for _, p := range own { // the context of the claim has ended
				p.SetContext(context.WithoutCancel(p.Context()))
			}
			return own, err // with an error Watermill publishes nothing
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
func run(ctx context.Context, h message.HandlerFunc, m *message.Message) ([]*message.Message, error) {
	before := m.Context()
	m.SetContext(ctx)
	defer m.SetContext(before)
	return h(m)
}
