package engine

import (
	"cmp"
	"context"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/decoded"
	"github.com/idem-go/idem/internal/identity"
)

// This file finds parts of the identity of an event without a valid one. They help the readers of
// the dead letter. No decision depends on them.

var usualID, usualType = identity.StandardID(), identity.StandardType()

// hints returns the ID and the type, as far as they were found. Without a handler, and if the
// handler needs a decoder that failed, the usual places are searched. Of a broken JSON object the
// complete members are searched. Either result may be empty.
func (p *Processor) hints(t *task) (id, typ string) {
	id, typ = t.id, t.typ
	route := t.route
	if route != nil && route.Type == "" { // the fallback
		route = nil
	}
	if route != nil {
		typ = route.Type
	}
	if c := t.copied; c != nil && c.Key.ID != "" {
		id, typ = cmp.Or(id, c.Key.ID), cmp.Or(typ, c.Key.Type)
	}
	h := hinter{p: p, route: route, id: id, typ: typ}
	h.search(t.message)
	if t.class == idemtype.ClassNotJSON {
		if value := identity.Salvage(t.message.Value); value != nil {
			part := *t.message
			part.Value = value
			h.searchHandler(&part)
			h.search(&part)
		}
	}
	return h.valid()
}

// hinter collects the parts.
type hinter struct {
	p       *Processor
	route   *bound // the handler; nil if it is not known
	id, typ string
}

// search looks in the usual places for the missing parts.
func (h *hinter) search(m *idemtype.Message) {
	if h.id == "" && (h.route == nil || h.route.ID.Decodes) {
		h.id, _ = usualID.Find(context.Background(), m)
	}
	if h.typ == "" {
		h.typ, _ = usualType.Find(context.Background(), m)
	}
}

// searchHandler looks in the places of the handlers, unless they call a decoder.
func (h *hinter) searchHandler(m *idemtype.Message) {
	ctx := decoded.Known(nil)
	_ = guard(func() error { // no hint is found by a function that panics
		if h.route == nil {
			h.route, h.typ, _ = h.p.routes.find(ctx, m)
		}
		if h.route == nil || h.route.ID.Decodes || h.id != "" {
			return nil
		}
		id, err := h.route.ID.Find(ctx, m)
		if err == nil && h.route.mixed {
			id = identity.Tagged(id, h.route.form)
		}
		h.id = id
		return err
	})
}

// valid returns the parts that fit into a key.
func (h *hinter) valid() (id, typ string) {
	if (dedup.Key{ID: h.id}).Validate() == nil {
		id = h.id
	}
	if (dedup.Key{ID: "-", Type: h.typ}).Validate() == nil {
		typ = h.typ
	}
	return id, typ
}
