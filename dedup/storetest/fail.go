package storetest

import (
	"context"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// failTests cover the errors of a store that cannot answer.
var failTests = []testCase{
	{name: "down: every verb fails with ErrUnavailable and answers nothing (R-19)", needs: Outage,
		run: downVerbs},
	{name: "down: Reopen, Check and Ping fail", needs: Outage, run: downAbilities},
	{name: "down: a caller's mistake is still a mistake", needs: Outage, run: downMistakes},
	{name: "context: cancelled before the call, an error and no answer", run: contextCancelled},
	{name: "context: cancelled during the calls, nothing is half true", run: contextDuring},
	{name: "check: a sound store passes", needs: Check, run: checkPasses},
	{name: "ping: a store that is there answers", needs: Check, run: pingAnswers},
}

func downVerbs(k *kit) {
	s := k.h.Down(k)
	ctx, cancel := context.WithTimeout(k.ctx, long)
	defer cancel()
	unavailable := func(verb string, err error) {
		k.Helper()
		require.ErrorIs(k, err, dedup.ErrUnavailable, verb)
		require.NotErrorIs(k, err, dedup.ErrClaimLost, "%s: the loss is not known", verb)
		require.NoError(k, ctx.Err(), "%s: gave up by itself, and soon", verb)
	}
	reqs := []dedup.Request{request("a"), request("b")}
	answers := stale(2)
	unavailable("Claim", s.Claim(ctx, dedup.NewToken(), long, reqs, answers))
	noAnswers(k, answers)
	c := reqs[0].Held(dedup.NewToken(), dedup.Answer{Fence: 1})
	for n := 1; n <= 2; n++ { // of two, none may count as renewed
		claims := []dedup.Claim{c, reqs[1].Held(dedup.NewToken(), dedup.Answer{Fence: 1})}[:n]
		err := s.Renew(ctx, long, claims)
		unavailable("Renew", err)
		require.Equal(k, n, k.notRenewed(err, n), "claims that failed")
	}
	unavailable("Complete", s.Complete(ctx, []dedup.Completion{completion(c)}))
	withResult := completion(c)
	withResult.Result = dedup.Result{Schema: 1, Data: []byte("x")}
	unavailable("Complete with result", s.Complete(ctx, []dedup.Completion{withResult}))
	unavailable("Complete with Dead", s.Complete(ctx, []dedup.Completion{dead(c, "why")}))
	unavailable("Complete with Retry", s.Complete(ctx, []dedup.Completion{moved(c, 1)}))
	unavailable("Release", s.Release(ctx, []dedup.Release{release(c, dedup.Failed)}))
}

func downAbilities(k *kit) {
	s := k.h.Down(k)
	if r, ok := s.(dedup.Operator); ok {
		_, err := r.Reopen(k.ctx, key("a"))
		require.ErrorIs(k, err, dedup.ErrUnavailable)
		require.NotErrorIs(k, err, dedup.ErrNotDead)
	}
	if c, ok := s.(dedup.Checker); ok {
		_, err := c.Check(k.ctx)
		require.ErrorIs(k, err, dedup.ErrUnavailable)
		require.ErrorIs(k, c.Ping(k.ctx), dedup.ErrUnavailable)
	}
}

// downMistakes: A mistaken call is refused before a server receives the call, so no caller waits
// for a server to come back.
func downMistakes(k *kit) {
	s := k.h.Down(k)
	err := s.Claim(k.ctx, dedup.NewToken(), long, []dedup.Request{request("b"), request("a")},
		stale(2))
	require.ErrorIs(k, err, dedup.ErrOrder)
	require.NotErrorIs(k, err, dedup.ErrUnavailable)
	bad := request("\x00")
	require.ErrorIs(k, s.Claim(k.ctx, dedup.NewToken(), long, []dedup.Request{bad}, stale(1)),
		dedup.ErrKey)
}

func contextCancelled(k *kit) {
	_, c := k.get(dedup.Fresh, long, request("held"))
	_, other := k.get(dedup.Fresh, long, request("other"))
	ctx, cancel := context.WithCancel(k.ctx)
	cancel()
	answers := stale(1)
	failed := func(err error) {
		k.Helper()
		require.ErrorIs(k, err, context.Canceled)
		require.NotErrorIs(k, err, dedup.ErrClaimLost)
	}
	failed(k.s.Claim(ctx, dedup.NewToken(), long, []dedup.Request{request("new")}, answers))
	noAnswers(k, answers)
	err := k.s.Renew(ctx, long, []dedup.Claim{c, other})
	failed(err)
	k.notRenewed(err, 2)
	failed(k.s.Complete(ctx, []dedup.Completion{completion(c)}))
	failed(k.s.Release(ctx, []dedup.Release{release(c, dedup.Failed)}))
	k.complete(completion(c)) // the store is as good as before
	k.meets(dedup.Done, request("held"))
}

// contextDuring cancels calls that are under way. Afterwards the same token learns the result
// or the release of an unknown claim (rule 32) undoes the claim.
func contextDuring(k *kit) {
	for i := range 40 {
		ctx, cancel := context.WithCancel(k.ctx)
		t, r, answers := dedup.NewToken(), request(numbered("cut", i)), stale(1)
		ended := make(chan error, 1)
		go func() { ended <- k.s.Claim(ctx, t, long, []dedup.Request{r}, answers) }()
		cancel()
		if err := <-ended; err != nil {
			noAnswers(k, answers)
		} else {
			require.Equal(k, dedup.Fresh, answers[0].Verdict)
		}
		if i%2 == 0 {
			a := k.try(k.s, t, long, r)
			require.Equal(k, dedup.Fresh, a.Verdict)
			require.EqualValues(k, 1, a.Fence)
			k.complete(completion(r.Held(t, a)))
			k.meets(dedup.Done, r)
			continue
		}
		k.harmless(k.s.Release(k.ctx, []dedup.Release{release(r.Held(t, dedup.Answer{}),
			dedup.Unstarted)}))
	}
}

func checkPasses(k *kit) {
	c, ok := k.s.(dedup.Checker)
	require.True(k, ok, "%T is no dedup.Checker, and storetest.Check is not in Harness.Missing",
		k.s)
	for range 2 {
		warnings, err := c.Check(k.ctx)
		require.NoError(k, err)
		k.Logf("warnings: %q", warnings)
	}
	k.meets(dedup.Fresh, request("after")) // the check left no record behind
}

func pingAnswers(k *kit) {
	p, ok := k.s.(dedup.Checker)
	require.True(k, ok, "%T is no dedup.Checker, and storetest.Check is not in Harness.Missing",
		k.s)
	require.NoError(k, p.Ping(k.ctx))
}
