package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/mark"
)

// The policy counts only for a record without an ID that no store waits for.
func TestWithoutID(t *testing.T) {
	missing := fmt.Errorf("header x %w", idemtype.ErrNotFound)
	for name, c := range map[string]struct {
		class   idemtype.Class
		err     error
		awaited bool
		counts  bool
	}{
		"missing":           {idemtype.ClassNoID, missing, false, true},
		"missing, awaited":  {idemtype.ClassNoID, missing, true, false},
		"not JSON":          {idemtype.ClassNotJSON, missing, false, false},
		"invalid":           {idemtype.ClassNoID, idemtype.ErrInvalid, false, false},
		"ambiguous":         {idemtype.ClassAmbiguous, idemtype.ErrAmbiguous, false, false},
		"missing, marked":   {idemtype.ClassNoID, mark.New(mark.Unavailable, 0, missing), false, false},
		"error of the user": {idemtype.ClassNoID, errors.New("boom"), false, false},
	} {
		for policy := idemtype.DeadLetterNoID; policy <= idemtype.RunNoID; policy++ {
			want := idemtype.DeadLetterNoID
			if c.counts {
				want = policy
			}
			p := &Policy{NoID: policy}
			require.Equal(t, want, p.withoutID(c.class, c.err, c.awaited), "%s, policy %d", name, policy)
		}
	}
}
