package decision_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/decision"
)

// rule 4: the key of a queue stays the same in each release, and in each store on the same tables.
func TestQueueKey_Rule4(t *testing.T) {
	require.NotNil(t, decision.QueueKey(""))
	require.Empty(t, decision.QueueKey(""))
	require.Equal(t, []byte("\x00\xff"), decision.QueueKey("\x00\xff"))
	short := strings.Repeat("k", decision.ShortQueue)
	require.Equal(t, []byte(short), decision.QueueKey(short))
	long := decision.QueueKey(short + "1")
	require.Len(t, long, decision.ShortQueue+32)
	require.Equal(t, short, string(long[:decision.ShortQueue]))
	require.NotEqual(t, long, decision.QueueKey(short+"2"))
}
