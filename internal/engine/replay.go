package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// replayed returns a handler for a replay beside the live group. scope is the default scope.
func replayed(h *Handler, r idemtype.Replay, scope string) *Handler {
	own := *h
	own.Mode, own.Delays, own.Unavailable = Blocking, nil, idemtype.UnavailablePolicy{}
	own.Scope = cmp.Or(h.Scope, scope) + r.ScopeSuffix
	switch {
	case r.ScopeSuffix != "":
		own.TooOld = idemtype.RunTooOld
	case own.NoID == idemtype.RunNoID:
		own.NoID = idemtype.SkipNoID
	}
	return &own
}

// checkScope refuses a scope that its suffix makes too long. Otherwise every event would become a
// dead letter.
func checkScope(h *Handler) error {
	if err := (dedup.Key{Scope: h.Scope, ID: "-"}).Validate(); err != nil {
		return fmt.Errorf("the replay has the scope %q: %w", h.Scope, err)
	}
	return nil
}

// KeyOrdered returns the event types of the handlers that were registered with KeyOrdered, sorted.
func (p *Processor) KeyOrdered() []string {
	types := slices.Clone(p.keyOrdered)
	slices.Sort(types)
	return slices.Compact(types)
}
