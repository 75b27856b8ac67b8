package idemtest

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// deadLetter is an event that became a dead letter. An event may do so several times.
type deadLetter struct {
	key   dedup.Key // without an identity: the parts that are known
	class idem.Class
}

func (d deadLetter) String() string {
	text := d.key.ID
	if d.key.Tenant != "" {
		text += fmt.Sprintf(" of tenant %q", d.key.Tenant)
	}
	return fmt.Sprintf("%s (%s)", text, d.class)
}

// lacks reports whether an event of list is not among others.
func lacks(others, list []deadLetter) bool {
	return slices.ContainsFunc(list, func(d deadLetter) bool {
		return !slices.ContainsFunc(others, func(o deadLetter) bool { return o.key == d.key })
	})
}

// breaks reports whether a run ended in another way than the clean run, and not in an accepted one.
func (s *search) breaks(clean, out outcomeOf) bool {
	repeated := more(out, clean)
	buried := lacks(clean.dead, out.dead)
	switch {
	case out.err != nil, lacks(out.dead, clean.dead), buried && !s.acceptDead:
		return true
	case reflect.DeepEqual(out.state, clean.state) && sameAnswers(clean, out):
		return false
	case out.unknown && !s.acceptUnknown, !s.accepts(repeated):
		return true
	case out.unknown, buried: // the effect of such an event or call may have happened, or not
		return false
	default:
		return len(repeated) == 0 || len(lost(clean, out)) > 0
	}
}

// sameAnswers reports whether each answer of a run is the first one of the clean run.
func sameAnswers(clean, out outcomeOf) bool {
	return !slices.ContainsFunc(out.answers, func(a any) bool {
		return !reflect.DeepEqual(a, clean.answers[0])
	})
}

// accepts reports whether all repeated calls are accepted.
func (s *search) accepts(repeated []difference) bool {
	return !slices.ContainsFunc(repeated, func(d difference) bool {
		return d.otherKey() || !slices.Contains(s.accept, d.what)
	})
}

// difference is a call with more effects in one run than in another.
type difference struct {
	effect
	calls []call // of the run with more
	fewer int
}

// otherKey reports whether the provider did not know the key of a repeated call.
func (d difference) otherKey() bool {
	keyed := slices.ContainsFunc(d.calls, func(c call) bool { return c.key != "" })
	return keyed && len(d.calls) > 1
}

// more returns the calls with more effects in a run than in another, in order.
func more(in, than outcomeOf) (all []difference) {
	for at, calls := range in.calls {
		if n := len(than.calls[at]); len(calls) > n {
			all = append(all, difference{at, calls, n})
		}
	}
	slices.SortFunc(all, func(a, b difference) int {
		return cmp.Or(cmp.Compare(a.event.ID, b.event.ID), cmp.Compare(a.event.Type, b.event.Type),
			cmp.Compare(a.what, b.what))
	})
	return all
}

// lost returns the calls with fewer effects in a run than in the clean run. A fault may cut batches
// in another way, so calls without an event do not count.
func lost(clean, out outcomeOf) []difference {
	return slices.DeleteFunc(more(clean, out), func(d difference) bool { return d.event == dedup.Key{} })
}
