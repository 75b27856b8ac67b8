package pgstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

const retention = time.Hour

func request(id string) dedup.Request {
	return dedup.Request{Key: dedup.Key{Tenant: "acme", Scope: "orders", Type: "payment.completed", ID: id},
		Origin:    dedup.Origin{Topic: "payments", Partition: 3, Offset: 42, Time: time.UnixMilli(1_700_000_000_000)},
		Retention: retention}
}

// batch returns n requests, ascending, that no other batch has.
func batch(n, number int) []dedup.Request {
	reqs := make([]dedup.Request, n)
	for i := range reqs {
		reqs[i] = request(fmt.Sprintf("pay_%08d_%06d", number, i))
	}
	return reqs
}

func plain(pgx.Tx) ([]dedup.Completion, error) { return nil, nil }

// BenchmarkClaimTx commits each transaction; the fsync of the disk is in it.
func BenchmarkClaimTx(b *testing.B) {
	for _, n := range []int{1, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, _ := newStore(b)
			answers := make([]dedup.Answer, n)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				i++
				require.NoError(b, s.ClaimTx(b.Context(), time.Minute, batch(n, i), answers, plain))
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkClaimTxRoundTrip measures the protocol, without a wait for the disk at the commit.
func BenchmarkClaimTxRoundTrip(b *testing.B) {
	s, _ := newStore(b, param("synchronous_commit", "off"))
	answers := make([]dedup.Answer, 1)
	i := 0
	for b.Loop() {
		i++
		require.NoError(b, s.ClaimTx(b.Context(), time.Minute, batch(1, i), answers, plain))
	}
}

// BenchmarkDuplicateTx is a group that was handled before.
func BenchmarkDuplicateTx(b *testing.B) {
	const n = 256
	s, _ := newStore(b)
	answers := make([]dedup.Answer, n)
	reqs := batch(n, 0)
	require.NoError(b, s.ClaimTx(b.Context(), time.Minute, reqs, answers, plain))
	for b.Loop() {
		require.NoError(b, s.ClaimTx(b.Context(), time.Minute, reqs, answers, plain))
	}
	require.Equal(b, dedup.Done, answers[n-1].Verdict)
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkClaim claims batches of new keys, and completes them in the second case.
func BenchmarkClaim(b *testing.B) {
	const n = 256
	for name, complete := range map[string]bool{"claim": false, "complete": true} {
		b.Run(name, func(b *testing.B) {
			s, _ := newStore(b)
			answers := make([]dedup.Answer, n)
			done := make([]dedup.Completion, n)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				i++
				reqs, t := batch(n, i), dedup.NewToken()
				require.NoError(b, s.Claim(b.Context(), t, time.Minute, reqs, answers))
				if complete {
					for j := range reqs {
						done[j] = dedup.Completion{Claim: reqs[j].Held(t, answers[j]), Retention: retention}
					}
					require.NoError(b, s.Complete(b.Context(), done))
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
