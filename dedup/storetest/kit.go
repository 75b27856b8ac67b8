package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// kit has the tools of one test: a store, a peer of the store, and verbs that fail the test
// instead of returning errors.
type kit struct {
	testing.TB
	h     Harness
	s     dedup.Store
	peer  dedup.Store
	lease time.Duration
	ctx   context.Context
}

func newKit(t testing.TB, h Harness) *kit {
	k := &kit{TB: t, h: h, s: h.New(t), lease: h.Lease, ctx: t.Context()}
	k.peer = k.s
	if h.Peer != nil {
		k.peer = h.Peer(t, k.s)
	}
	return k
}

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
		require.Contains(k, knownVerdicts, a.Known, "the answer to an equal copy")
	} else {
		require.Zero(k, a.Known, "%v: known without a conflict", a.Verdict)
	}
	if told == dedup.Busy {
		require.Positive(k, a.Wait, "Busy has a wait")
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

// knownVerdicts are the verdicts about the other event of a conflict.
var knownVerdicts = []dedup.Verdict{dedup.Fresh, dedup.Busy, dedup.Done, dedup.Dead,
	dedup.Rescheduled}

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

// notRenewed requires err to be the failure of a renewal of n claims. A [dedup.PartError] must name
// claims of the call. The result is the number of claims that failed.
func (k *kit) notRenewed(err error, n int) (failed int) {
	k.Helper()
	require.Error(k, err)
	var part *dedup.PartError
	if !errors.As(err, &part) {
		return n
	}
	require.NotEmpty(k, part.Failed, "a PartError without a failure: %v", err)
	require.Error(k, part.Err, "a PartError without a reason")
	for name, indices := range map[string][]int{"Failed": part.Failed, "Lost": part.Lost} {
		for i, at := range indices {
			require.True(k, at >= 0 && at < n, "PartError.%s has the index %d of %d claims",
				name, at, n)
			require.True(k, i == 0 || indices[i-1] < at, "PartError.%s does not ascend: %v", name,
				indices)
		}
	}
	for _, at := range part.Lost {
		require.NotContains(k, part.Failed, at, "a claim of a PartError is failed and lost")
	}
	return len(part.Failed)
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

// patiently calls try with the lease of the harness, and with longer ones as long as try returns
// false: a machine that stalls for a whole lease proves no fault.
func (k *kit) patiently(try func(lease time.Duration) bool) {
	k.Helper()
	lease := k.lease
	for range 6 {
		if try(lease) {
			return
		}
		lease *= 2
	}
	require.Fail(k, "the store never answered within a lease")
}

// zombie returns a claim with an ended lease, and the claim of the present holder of the same
// key.
func (k *kit) zombie(id string) (late, holder dedup.Claim) {
	k.Helper()
	_, late = k.get(dedup.Fresh, k.lease, request(id))
	k.outlast()
	_, holder = k.get(dedup.Uncertain, long, request(id))
	return late, holder
}

// random returns a source of random numbers with a new seed, or that of the environment variable
// IDEM_SEED.
func (k *kit) random() (*rand.Rand, uint64) {
	k.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("IDEM_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(k, err, "IDEM_SEED")
	}
	k.Logf("IDEM_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1)), seed
}

// steps returns the number of steps of a random test: n, or ten times as many if the environment
// variable IDEM_SOAK is set.
func steps(n int) int {
	if os.Getenv("IDEM_SOAK") != "" {
		return 10 * n
	}
	return n
}

func noAnswers(k *kit, answers []dedup.Answer) {
	k.Helper()
	for i := range answers {
		require.Zero(k, answers[i].Verdict, "an error and an answer: a caller will run on it "+
			"(R-19)")
	}
}

// testCase is one test of the kit.
type testCase struct {
	name  string
	needs Ability // skipped if missing
	alone bool    // too heavy to run beside tests that measure time
	run   func(k *kit)
}

func runOne(t *testing.T, h Harness, c testCase) {
	if c.needs != "" && h.lacks(c.needs) {
		t.Skipf("Harness.Missing has %q", c.needs)
	}
	if h.Around != nil { // a bubble cannot hold parallel tests
		h.Around(t, func(t *testing.T) { c.run(newKit(t, h)) })
		return
	}
	if !c.alone {
		t.Parallel()
	}
	c.run(newKit(t, h))
}
