package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

const (
	long      = time.Minute // a lease that does not end during a test
	retention = time.Hour
)

// kit has the tools of one test: a store, a peer of the store, and verbs that fail the test
// instead of returning errors.
type kit struct {
	*testing.T
	h     Harness
	s     dedup.Store
	peer  dedup.Store
	lease time.Duration
	ctx   context.Context
}

func newKit(t *testing.T, h Harness) *kit {
	k := &kit{T: t, h: h, s: h.New(t), lease: h.Lease, ctx: t.Context()}
	k.peer = k.s
	if h.Peer != nil {
		k.peer = h.Peer(t, k.s)
	}
	return k
}

func key(id string) dedup.Key {
	return dedup.Key{Tenant: "acme", Scope: "orders", Type: "order.created", ID: id}
}

func request(id string) dedup.Request {
	return dedup.Request{Key: key(id), Retention: retention, Origin: origin(len(id), 7)}
}

// origin has a time in milliseconds, as records of Kafka have.
func origin(partition, offset int) dedup.Origin {
	return dedup.Origin{Topic: "orders", Partition: int32(partition), Offset: int64(offset),
		Time: today.Add(time.Duration(offset) * time.Millisecond)}
}

// today is the time of events, which a store must not take for too old.
var today = time.Now().UTC().Truncate(time.Millisecond)

// try asks s for one claim under token t.
func (k *kit) try(s dedup.Store, t dedup.Token, lease time.Duration, r dedup.Request) dedup.Answer {
	k.Helper()
	var a [1]dedup.Answer
	require.NoError(k, s.Claim(k.ctx, t, lease, []dedup.Request{r}, a[:]))
	k.wellFormed(r, lease, a[0])
	return a[0]
}

// ask asks under a new token and returns the answer and the claim that a grant would give.
func (k *kit) ask(lease time.Duration, r dedup.Request) (dedup.Answer, dedup.Claim) {
	k.Helper()
	t := dedup.NewToken()
	a := k.try(k.s, t, lease, r)
	return a, r.Held(t, a)
}

// get asks for a claim that must be granted with verdict v.
func (k *kit) get(v dedup.Verdict, lease time.Duration, r dedup.Request) (dedup.Answer,
	dedup.Claim) {
	k.Helper()
	a, c := k.ask(lease, r)
	require.Equal(k, v, a.Verdict, "key %q", r.Key)
	return a, c
}

// meets asks under a new token, through the peer, and requires a verdict.
func (k *kit) meets(v dedup.Verdict, r dedup.Request) dedup.Answer {
	k.Helper()
	a := k.try(k.peer, dedup.NewToken(), long, r)
	require.Equal(k, v, a.Verdict, "key %q, position %v", r.Key, r.Position)
	return a
}

// wellFormed checks the rules for every answer.
func (k *kit) wellFormed(r dedup.Request, lease time.Duration, a dedup.Answer) {
	k.Helper()
	require.NotZero(k, a.Verdict, "a nil error without an answer for %q", r.Key)
	if a.Verdict.Held() {
		require.Positive(k, a.Fence, "a claim that is held has a fence")
	} else {
		require.Zero(k, a.Fence, "%v: a fence without a claim", a.Verdict)
		require.Zero(k, a.Failures, "%v: failures are for the holder", a.Verdict)
		require.Zero(k, a.Takeovers, "%v: take-overs are for the holder", a.Verdict)
	}
	told := a.Verdict
	if a.Verdict == dedup.Conflict {
		told = a.Known
		require.Contains(k, knownVerdicts, a.Known, "what an equal copy would be told")
	} else {
		require.Zero(k, a.Known, "%v: known without a conflict", a.Verdict)
	}
	if told == dedup.Busy {
		require.Positive(k, a.Wait, "Busy says how long to wait")
		require.LessOrEqual(k, a.Wait, max(lease, long),
			"Busy for longer than any lease of the test")
	} else {
		require.Zero(k, a.Wait, "%v: nothing to wait for", a.Verdict)
	}
	if told != dedup.Dead {
		require.Empty(k, a.Reason, "%v: a reason without a death", a.Verdict)
	}
	if a.Verdict != dedup.Done {
		require.True(k, a.Result.IsZero(), "%v: a result of something that is not done", a.Verdict)
	}
}

// prints are two fingerprints of each kind.
var prints = map[string][2]dedup.Fingerprint{
	"checksum":   {dedup.Checksum([]byte("one")), dedup.Checksum([]byte("two"))},
	"keyed hash": {keyedHash(1), keyedHash(2)},
}

func keyedHash(n byte) (f dedup.Fingerprint) {
	for i := range f {
		f[i] = n*16 + byte(i)
	}
	return f
}

// knownVerdicts are the verdicts about the other event of a conflict.
var knownVerdicts = []dedup.Verdict{dedup.Fresh, dedup.Busy, dedup.Done, dedup.Dead,
	dedup.Rescheduled}

func completion(c dedup.Claim) dedup.Completion {
	return dedup.Completion{Claim: c, Retention: retention}
}

func dead(c dedup.Claim, why string) dedup.Completion {
	d := completion(c)
	d.Dead = why
	return d
}

func moved(c dedup.Claim, retry uint32) dedup.Completion {
	d := completion(c)
	d.Retry = retry
	return d
}

func release(c dedup.Claim, o dedup.Outcome) dedup.Release {
	return dedup.Release{Claim: c, Outcome: o, Retention: retention}
}

func (k *kit) complete(done ...dedup.Completion) {
	k.Helper()
	require.NoError(k, k.s.Complete(k.ctx, done))
}

func (k *kit) release(r ...dedup.Release) {
	k.Helper()
	require.NoError(k, k.s.Release(k.ctx, r))
}

func (k *kit) renew(lease time.Duration, c ...dedup.Claim) {
	k.Helper()
	require.NoError(k, k.s.Renew(k.ctx, lease, c))
}

// lost requires err to report exactly the claims at these indices as lost.
func (k *kit) lost(err error, claims ...int) {
	k.Helper()
	var l *dedup.LostError
	require.ErrorAs(k, err, &l)
	require.ErrorIs(k, err, dedup.ErrClaimLost)
	require.Equal(k, claims, l.Claims, "the indices of the lost claims")
}

// harmless accepts success and a lost claim of a verb that changes no record.
func (k *kit) harmless(err error) {
	k.Helper()
	if !errors.Is(err, dedup.ErrClaimLost) {
		require.NoError(k, err)
	}
}

// outlast lets a lease of the harness end.
func (k *kit) outlast() { k.h.Sleep(k.lease + k.lease/4 + 5*time.Millisecond) }

// zombie returns a claim with an ended lease, and the claim of the present holder of the same
// key.
func (k *kit) zombie(id string) (late, holder dedup.Claim) {
	k.Helper()
	_, late = k.get(dedup.Fresh, k.lease, request(id))
	k.outlast()
	_, holder = k.get(dedup.Uncertain, long, request(id))
	return late, holder
}

func sorted(reqs []dedup.Request) []dedup.Request {
	slices.SortFunc(reqs, func(a, b dedup.Request) int { return a.Key.Compare(b.Key) })
	return reqs
}

func sameOrigin(t testing.TB, want, got dedup.Origin) {
	t.Helper()
	require.True(t, want.Same(got), "origin %v, want %v", got, want)
	require.True(t, want.Time.Equal(got.Time), "time of the origin %v, want %v", got.Time,
		want.Time)
}

// lostIsFine accepts the errors of callers that may come too late.
func lostIsFine(err error) error {
	if errors.Is(err, dedup.ErrClaimLost) {
		return nil
	}
	return err
}
