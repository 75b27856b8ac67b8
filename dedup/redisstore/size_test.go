package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/internal/testenv"
)

// The memory for an event that is done, as in docs/scale.md.
func TestBytesPerEvent(t *testing.T) {
	client, prefix := testenv.Redis(t)
	s := redisstore.New(client, redisstore.Prefix(prefix))
	key := dedup.Key{Scope: "orders", Type: "payment.completed", ID: "0198f3a2-7c1b-7d3e-9f00-000000000001"}
	reqs := []dedup.Request{{Key: key, Retention: time.Hour, Origin: dedup.Origin{Topic: "payments", Partition: 3, Offset: 123456, Time: time.Now()}}}
	var answers [1]dedup.Answer
	token := dedup.NewToken()
	require.NoError(t, s.Claim(t.Context(), token, time.Minute, reqs, answers[:]))
	require.NoError(t, s.Complete(t.Context(), []dedup.Completion{{Claim: reqs[0].Held(token, answers[0]), Retention: time.Hour}}))
	keys, err := client.Keys(t.Context(), prefix+"*"+key.ID+"*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	bytes, err := client.MemoryUsage(t.Context(), keys[0]).Result()
	require.NoError(t, err)
	t.Logf("%d bytes", bytes)
	require.Less(t, bytes, int64(400))
}
