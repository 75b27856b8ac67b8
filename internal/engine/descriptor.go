package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
)

// Register records the group and the extractors of each event type in the stores. Changed
// extractors, or another scope, would make every event of the backlog new (rules 7 and 14).
func (p *Processor) Register(ctx context.Context, r dedup.Registration) error {
	r.Group = cmp.Or(r.Group, p.cfg.Group)
	var errs []error
	for _, place := range p.places() {
		registrar, ok := place.access.store.(dedup.Registrar)
		if !ok {
			continue
		}
		own := r
		own.Scope, own.Descriptors = place.scope, p.descriptors(place)
		errs = append(errs, withCommand(registrar.Register(ctx, own), &own))
	}
	return errors.Join(errs...)
}

// RecordProgress records the progress of the group in the stores, for each scope of the handlers.
func (p *Processor) RecordProgress(ctx context.Context, progress []dedup.Progress) error {
	var errs []error
	for _, place := range p.places() {
		if store, ok := place.access.store.(dedup.ProgressRecorder); ok {
			errs = append(errs, store.RecordProgress(ctx, place.scope, progress))
		}
	}
	return errors.Join(errs...)
}

// storeScope is a scope in a store.
type storeScope struct {
	access *storeAccess
	scope  string
}

// places returns the scopes of all handlers, each once. The stores are in the order of their first
// handlers, and the scopes of a store are sorted.
func (p *Processor) places() (all []storeScope) {
	for b := range p.handlers {
		at := p.placeOf(b)
		if !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(a, b storeScope) int {
		return cmp.Or(
			slices.Index(p.stores, a.access)-slices.Index(p.stores, b.access),
			cmp.Compare(a.scope, b.scope),
		)
	})
	return all
}

func (p *Processor) placeOf(b *bound) storeScope {
	return storeScope{b.access, cmp.Or(b.Handler.Scope, p.cfg.Scope)}
}

func (p *Processor) handlers(yield func(*bound) bool) {
	for _, g := range p.routes.groups {
		for _, b := range g.byType {
			if !yield(b) {
				return
			}
		}
	}
}

// descriptors returns one text for each type. Handlers of one type with different extractors share
// a text, sorted.
func (p *Processor) descriptors(at storeScope) map[string]string {
	words := make(map[string][]string)
	for b := range p.handlers {
		if p.placeOf(b) == at {
			words[b.Type] = append(words[b.Type], b.descriptor(b.mixed))
		}
	}
	all := make(map[string]string, len(words))
	for typ, w := range words {
		slices.Sort(w)
		all[typ] = strings.Join(slices.Compact(w), " | ")
	}
	return all
}

// descriptor describes the extractors of type, ID and tenant. Stores keep the text, and a changed
// word would make every event new. mixed is true if other handlers of the type find identities of
// another form.
func (s *Settings) descriptor(mixed bool) string {
	id := " id="
	if mixed {
		id = " id/2="
	}
	words := "type=" + s.Source.Descriptor + id + s.ID.Descriptor
	if s.Tenant.Find != nil {
		words += " tenant=" + s.Tenant.Descriptor
	}
	return words
}
