package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/mark"
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

// A mark is found in every branch of a joined error, for all marks of the branches before it.
func TestFindMark_Joined(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	later := RetryAfter(time.Minute, b)
	for name, c := range map[string]struct {
		err    error
		has    []mark.Kind
		lacks  []mark.Kind
		waits  time.Duration
		result meaning
	}{
		"no mark":                {errors.Join(a, b), nil, []mark.Kind{mark.Permanent, mark.NotApplied, mark.RetryAfter, mark.Unavailable}, 0, transient},
		"not applied, down":      {errors.Join(NotApplied(a), Unavailable(b)), []mark.Kind{mark.NotApplied, mark.Unavailable}, []mark.Kind{mark.Permanent, mark.RetryAfter}, 0, unavailable},
		"down, not applied":      {errors.Join(Unavailable(b), NotApplied(a)), []mark.Kind{mark.NotApplied, mark.Unavailable}, []mark.Kind{mark.Permanent}, 0, unavailable},
		"not applied, permanent": {errors.Join(NotApplied(a), Permanent(b)), []mark.Kind{mark.NotApplied, mark.Permanent}, nil, 0, permanent},
		"down, later":            {fmt.Errorf("%w, %w", Unavailable(a), later), []mark.Kind{mark.Unavailable, mark.RetryAfter}, nil, time.Minute, unavailable},
		"below another mark":     {NotApplied(errors.Join(Unavailable(a), later)), []mark.Kind{mark.NotApplied, mark.Unavailable, mark.RetryAfter}, nil, time.Minute, unavailable},
		"third branch, deep":     {errors.Join(a, NotApplied(b), fmt.Errorf("x: %w", errors.Join(b, later))), []mark.Kind{mark.NotApplied, mark.RetryAfter}, nil, time.Minute, notApplied},
		"the outer of two":       {RetryAfter(time.Minute, RetryAfter(time.Hour, a)), []mark.Kind{mark.RetryAfter}, nil, time.Minute, transient},
		"library with an As":     {multi{NotApplied(a), Unavailable(b)}, []mark.Kind{mark.NotApplied, mark.Unavailable}, []mark.Kind{mark.Permanent}, 0, unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range c.has {
				m, ok := mark.Find(c.err, kind)
				require.True(t, ok, "mark %d", kind)
				require.Equal(t, kind, m.Kind)
			}
			for _, kind := range c.lacks {
				m, ok := mark.Find(c.err, kind)
				require.False(t, ok, "mark %d", kind)
				require.Nil(t, m)
			}
			o := classify(nil, c.err)
			require.Equal(t, c.result, o.meaning)
			require.Equal(t, c.waits, o.after)
		})
	}
}
