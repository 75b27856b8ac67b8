package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// P-13: the outcome of a failed transaction keeps the end of the transaction by its handler,
// whatever the handler returned.
func TestTxOutcome_KeepsTheEndByTheHandler_P13(t *testing.T) {
	boom := errors.New("boom")
	permanently := Permanent(boom)
	ended := fmt.Errorf("%w: %w", dedup.ErrTxEnded, permanently)
	for name, c := range map[string]struct {
		o    outcome
		err  error
		want outcome
	}{
		"no error": {
			outcome{}, dedup.ErrTxEnded,
			outcome{meaning: transient, class: idemtype.ClassFailed, err: dedup.ErrTxEnded},
		},
		"failure": {
			classify(nil, boom), fmt.Errorf("%w: %w", dedup.ErrTxEnded, boom),
			outcome{
				meaning: transient, class: idemtype.ClassFailed,
				err: fmt.Errorf("%w: %w", dedup.ErrTxEnded, boom),
			},
		},
		"permanent failure": {
			classify(nil, permanently), ended,
			outcome{meaning: permanent, class: idemtype.ClassPermanent, err: ended},
		},
		"permanent failure, rolled back": {
			classify(nil, permanently), fmt.Errorf("store: %w", permanently),
			outcome{meaning: permanent, class: idemtype.ClassPermanent, err: permanently},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, txOutcome(t.Context(), c.o, true, c.err))
		})
	}
}
