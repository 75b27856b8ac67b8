package mysql_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// Rule 1: groups with different keys do not wait for each other. A scan of a small table would meet
// the locks of every other transaction, and end with ErrContended.
func TestGroupsOfOtherKeysDoNotWait(t *testing.T) {
	for _, n := range []int{2, 300} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := open(t, newTables(t))
			err := claimGroup(t, s, "first", n, func() error {
				return claimGroup(t, s, "second", n, func() error { return nil })
			})
			require.NoError(t, err)
		})
	}
}

// claimGroup claims n new keys and runs fn in the transaction.
func claimGroup(t *testing.T, s dedup.TxStore[*sql.Tx], name string, n int, fn func() error) error {
	reqs, answers := make([]dedup.Request, n), make([]dedup.Answer, n)
	for i := range reqs {
		reqs[i] = dedup.Request{Key: dedup.Key{Scope: "s", Type: "t", ID: fmt.Sprintf("%s-%03d", name, i)}, Retention: time.Hour}
	}
	return s.ClaimTx(t.Context(), time.Minute, reqs, answers, func(*sql.Tx) ([]dedup.Completion, error) {
		for i := range answers {
			require.Equal(t, dedup.Fresh, answers[i].Verdict, reqs[i].Key.ID)
		}
		return nil, fn()
	})
}
