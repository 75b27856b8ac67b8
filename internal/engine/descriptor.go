package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
)

// Register says in the stores who consumes what, and by which recipe each type's events are told apart, before the first
// event: a recipe that has changed, or a group that begins anew under another scope, would make every event of the
// backlog new again (rules 7 and 14). A consumer calls it at its start. r.Scope and r.Recipes are filled in for each
// store and scope that handlers use; r.Group defaults to [Config].Group. Stores that are no [dedup.Registrar] are
// skipped.
//
// Errors are joined, one for each store and scope that refuses; they match [dedup.ErrIdentityChanged],
// [dedup.ErrOtherScope], or [dedup.ErrUnavailable], with which it is to be called again. What other stores have recorded
// stays recorded.
func (p *Processor) Register(ctx context.Context, r dedup.Registration) error {
	r.Group = cmp.Or(r.Group, p.cfg.Group)
	var errs []error
	for _, place := range p.places() {
		registrar, ok := place.access.store.(dedup.Registrar)
		if !ok {
			continue
		}
		own := r
		own.Scope, own.Recipes = place.scope, p.recipes(place)
		errs = append(errs, registrar.Register(ctx, own))
	}
	return errors.Join(errs...)
}

// RecordProgress says in the stores how far the group has consumed, for each scope that handlers use: a store that
// forgets in consumed time needs to know ([dedup.ProgressRecorder]); others are skipped. Errors are joined; nothing is
// lost by them but time.
func (p *Processor) RecordProgress(ctx context.Context, progress []dedup.Progress) error {
	var errs []error
	for _, place := range p.places() {
		if store, ok := place.access.store.(dedup.ProgressRecorder); ok {
			errs = append(errs, store.RecordProgress(ctx, place.scope, progress))
		}
	}
	return errors.Join(errs...)
}

// place is where handlers remember.
type storeScope struct {
	access *storeAccess
	scope  string
}

// places returns each once: by store as they were registered, then by scope.
func (p *Processor) places() (all []storeScope) {
	for b := range p.handlers {
		at := p.placeOf(b)
		if !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(a, b storeScope) int {
		return cmp.Or(slices.Index(p.stores, a.access)-slices.Index(p.stores, b.access), cmp.Compare(a.scope, b.scope))
	})
	return all
}

func (p *Processor) placeOf(b *bound) storeScope {
	return storeScope{b.access, cmp.Or(b.Handler.Scope, p.cfg.Scope)}
}

// handlers are all routes.
func (p *Processor) handlers(yield func(*bound) bool) {
	for _, g := range p.routes.groups {
		for _, b := range g.byType {
			if !yield(b) {
				return
			}
		}
	}
}

// recipes has one text for each type. Handlers of one type that find it in different places share it, sorted.
func (p *Processor) recipes(at storeScope) map[string]string {
	words := make(map[string][]string)
	for b := range p.handlers {
		if p.placeOf(b) == at {
			words[b.Type] = append(words[b.Type], b.recipe(b.mixed))
		}
	}
	all := make(map[string]string, len(words))
	for typ, w := range words {
		slices.Sort(w)
		all[typ] = strings.Join(slices.Compact(w), " | ")
	}
	return all
}

// recipe says where type, ID and tenant of an event come from. It is the same text as long as they come from the same
// places, and is kept in stores: changing a word changes the identity of everybody's events. mixed says that other handlers of the
// type find identities of another form.
func (s *Settings) recipe(mixed bool) string {
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
