package idem

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// multi has its branches behind an As of its own, as older libraries of joined errors do.
type multi []error

func (m multi) Error() string { return fmt.Sprint([]error(m)) }

func (m multi) As(target any) bool {
	for _, err := range m {
		if errors.As(err, target) {
			return true
		}
	}
	return false
}

// A mark is found in every branch of a joined error, whatever marks the branches before it have.
func TestFindMark_Joined(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	later := RetryAfter(time.Minute, b)
	for name, c := range map[string]struct {
		err    error
		has    []markKind
		lacks  []markKind
		waits  time.Duration
		result meaning
	}{
		"no mark":                {errors.Join(a, b), nil, []markKind{markPermanent, markNotApplied, markRetryAfter, markUnavailable}, 0, transient},
		"not applied, down":      {errors.Join(NotApplied(a), Unavailable(b)), []markKind{markNotApplied, markUnavailable}, []markKind{markPermanent, markRetryAfter}, 0, unavailable},
		"down, not applied":      {errors.Join(Unavailable(b), NotApplied(a)), []markKind{markNotApplied, markUnavailable}, []markKind{markPermanent}, 0, unavailable},
		"not applied, permanent": {errors.Join(NotApplied(a), Permanent(b)), []markKind{markNotApplied, markPermanent}, nil, 0, permanent},
		"down, later":            {fmt.Errorf("%w, %w", Unavailable(a), later), []markKind{markUnavailable, markRetryAfter}, nil, time.Minute, unavailable},
		"below another mark":     {NotApplied(errors.Join(Unavailable(a), later)), []markKind{markNotApplied, markUnavailable, markRetryAfter}, nil, time.Minute, unavailable},
		"third branch, deep":     {errors.Join(a, NotApplied(b), fmt.Errorf("x: %w", errors.Join(b, later))), []markKind{markNotApplied, markRetryAfter}, nil, time.Minute, notApplied},
		"the outer of two":       {RetryAfter(time.Minute, RetryAfter(time.Hour, a)), []markKind{markRetryAfter}, nil, time.Minute, transient},
		"library with an As":     {multi{NotApplied(a), Unavailable(b)}, []markKind{markNotApplied, markUnavailable}, []markKind{markPermanent}, 0, unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range c.has {
				m, ok := findMark(c.err, kind)
				require.True(t, ok, markNames[kind])
				require.Equal(t, kind, m.kind)
			}
			for _, kind := range c.lacks {
				m, ok := findMark(c.err, kind)
				require.False(t, ok, markNames[kind])
				require.Nil(t, m)
			}
			o := classify(nil, c.err)
			require.Equal(t, c.result, o.meaning)
			require.Equal(t, c.waits, o.after)
		})
	}
}
