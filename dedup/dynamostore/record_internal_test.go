package dynamostore

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
	"github.com/stretchr/testify/require"
)

// A record is read as it was written, with values at the edges of their ranges.
func TestRecordRoundTrip(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	n32 := func() uint32 { return []uint32{0, 1, rng.Uint32(), math.MaxUint32}[rng.IntN(4)] }
	n64 := func() uint64 { return []uint64{0, 1, rng.Uint64(), math.MaxUint64}[rng.IntN(4)] }
	for range 5000 {
		now := time.UnixMilli(time.Now().UnixMilli() + int64(rng.IntN(1e9))).UTC()
		r := &record{rev: n64(), Record: decision.Record{
			State: decision.State(rng.IntN(len(states))), Token: dedup.NewToken(),
			Doubt: rng.IntN(2) == 0, Reopened: rng.IntN(2) == 0,
			Fence: n64(), Failures: n32(), Takeovers: n32(), Created: now,
			Position:    dedup.Position{Generation: n32(), Retry: n32()},
			Fingerprint: dedup.Fingerprint{byte(rng.IntN(2))},
			Reason:      []string{"", "why"}[rng.IntN(2)],
		}}
		if rng.IntN(2) == 0 {
			r.First = dedup.Origin{Topic: "é", Partition: int32(n32()), Offset: int64(n64()), Time: now}
		}
		if rng.IntN(2) == 0 {
			r.Result = dedup.Result{Schema: n32(), Data: [][]byte{nil, {}, {0, 255}}[rng.IntN(3)]}
		}
		if r.State == decision.Claimed {
			r.lease = time.Duration(1+rng.IntN(1e6)) * time.Millisecond
		}
		r.Changed, r.Retention = now, time.Duration(1+rng.Int64N(int64(48*time.Hour)))
		r.stamp()
		got, err := decode("key", r.encode("key"))
		require.NoError(t, err, "%+v", r)
		require.Equal(t, r, got)
	}
	_, err := decode("other", new(record).encode("key"))
	require.ErrorIs(t, err, errItem)
}

// keys that are too long for DynamoDB differ as well, and from all others.
func TestKeys(t *testing.T) {
	long := strings.Repeat(":", dedup.MaxPart)
	seen := make(map[string]dedup.Key)
	for i := range 50 {
		for _, k := range []dedup.Key{
			{ID: fmt.Sprint(i)}, {Tenant: fmt.Sprint(i), ID: "x"},
			{Tenant: long, Scope: long, Type: long, ID: long[:200] + fmt.Sprint(i)},
			{Tenant: long, Scope: long, Type: long[:200] + fmt.Sprint(i), ID: long},
		} {
			name := keyOf(k)
			require.LessOrEqual(t, len(name), maxKey)
			require.NotContains(t, seen, name, "%v", k)
			seen[name] = k
		}
	}
	// Neither key is that of an item about a scope, and no scope forges one: items about scopes
	// have one colon.
	require.Equal(t, 3, strings.Count(keyOf(dedup.Key{ID: "born:x"}), ":"))
	require.Equal(t, "born:sha256%3A1", dedup.Join("born", "sha256:1"))
}

// No length of time overflows or gets shorter.
func TestTimesAtTheirEdges(t *testing.T) {
	now := time.Now()
	for _, d := range []time.Duration{1, time.Second, time.Second + 1, math.MaxInt64} {
		r := record{Record: decision.Record{State: decision.Done, Changed: now, Retention: d}}
		r.stamp()
		require.GreaterOrEqual(t, r.Retention, min(d, maxRetention))
		require.Greater(t, r.expires, now.Unix())
		require.False(t, r.forgotten(now.Add(min(d, maxRetention))))
		require.Positive(t, millis(d))
	}
}
