package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A renamed group is seen by its topics. Without any topic of the group the check could not be made (rule 14, rule 46).
func TestScopeRecords(t *testing.T) {
	there := []scopeTopic{{"orders", "billing"}, {"bills", "mail"}}
	for _, c := range []struct {
		records   []scopeTopic
		scope     string
		consumed  []string
		noOffsets bool
		want      Verdict
	}{
		{there, "billing", []string{"orders"}, false, OK},
		{there, "billing", nil, false, OK},
		{there, "billing-v2", []string{"orders"}, false, Warn},
		{there, "billing-v2", []string{"orders"}, true, Bad},
		{there, "billing-v2", []string{"payments"}, true, OK},
		{there, "billing-v2", nil, true, Unknown},
		{nil, "billing-v2", nil, true, OK}, // the first group of the store
	} {
		s := scopeRecords{known: true, topics: c.records}
		var r Findings
		s.check(&r, c.scope, c.consumed, c.noOffsets)
		require.Equal(t, c.want, worst(r, "store.scope").Verdict, "%+v: %+v", c, r)
	}
}
