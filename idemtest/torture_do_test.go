package idemtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

type charge struct{ Number int }

// charged is a call of Do with a mail as its effect.
func charged(
	id func() string, key func(context.Context) string,
) func(context.Context, *dedup.Guard, *shop) (charge, bool, error) {
	return func(ctx context.Context, g *dedup.Guard, s *shop) (charge, bool, error) {
		return dedup.Do(ctx, g, dedup.Key{Scope: "shop", Type: "charge", ID: id()},
			func(ctx context.Context) (charge, error) {
				err := s.send(ctx, "ann", key(ctx))
				s.mu.Lock()
				defer s.mu.Unlock()
				return charge{len(s.mails)}, err
			})
	}
}

func fixed() string { return "order-7" }

func fromNow() string { return time.Now().String() }

func noKey(context.Context) string { return "" }

func derived(ctx context.Context) string {
	key, _ := dedup.ParentFrom(ctx)
	return key.ID
}

func TestTortureDo(t *testing.T) {
	rerun := []TortureOption{Guard(dedup.GuardConfig{Rerun: true}), Seed(1), Pairs(60)}
	t.Run("a key of the call, passed on", func(t *testing.T) {
		TortureDo(t, newShop, charged(fixed, derived), (*shop).state, rerun...)
	})
	t.Run("a key from the time", func(t *testing.T) {
		text, broken := SearchDo(t, newShop, charged(fromNow, noKey), (*shop).state, rerun...)
		t.Log(text)
		require.True(t, broken)
		require.Contains(t, text, `answer without faults: {Number:1}`)
	})
	t.Run("no key for the provider", func(t *testing.T) {
		text, broken := SearchDo(t, newShop, charged(fixed, noKey), (*shop).state, rerun...)
		t.Log(text)
		require.True(t, broken)
		require.Contains(t, text, `"send mail" for event "order-7" had its effect 2 times`)
		require.Contains(t, text, "idemtest.Guard(dedup.GuardConfig{Rerun: true}),")
		_, broken = SearchDo(t, newShop, charged(fixed, noKey), (*shop).state,
			append(rerun, AcceptRepeats("send mail"))...)
		require.False(t, broken)
	})
	// Without Rerun the caller learns that the outcome is unknown.
	t.Run("an unknown outcome", func(t *testing.T) {
		mail := charged(fixed, derived)
		text, broken := SearchDo(t, newShop, mail, (*shop).state, Seed(1), Pairs(60))
		require.True(t, broken)
		require.Contains(t, text, dedup.ErrUnknownOutcome.Error())
		TortureDo(t, newShop, mail, (*shop).state, Seed(1), Pairs(60), AcceptUnknown())
	})
	// The first caller gets a field that the kept result has not.
	t.Run("a result that JSON does not carry", func(t *testing.T) {
		type result struct{ number int }
		text, broken := SearchDo(t, newShop, func(ctx context.Context, g *dedup.Guard, _ *shop) (result, bool, error) {
			return dedup.Do(ctx, g, dedup.Key{Scope: "shop", Type: "charge", ID: "1"},
				func(context.Context) (result, error) { return result{7}, nil })
		}, (*shop).state, rerun...)
		require.True(t, broken)
		require.Contains(t, text, "without any fault")
		require.Contains(t, text, "{number:7}, then {number:0}")
		require.NotContains(t, text, "Only")
	})
	t.Run("one schedule", func(t *testing.T) {
		text, broken := SearchDo(t, newShop, charged(fixed, noKey), (*shop).state, append(rerun, Only("4:die"))...)
		require.True(t, broken, text)
		_, broken = SearchDo(t, newShop, charged(fixed, noKey), (*shop).state, append(rerun, Only("1:die"))...)
		require.False(t, broken)
	})
}

func TestReplyOf(t *testing.T) {
	again, answer := true, false
	for _, c := range []struct {
		err            error
		rerun, again   bool
		unknown, keeps bool
	}{
		{nil, false, answer, false, true},
		{ErrFault, false, again, false, false},
		{dedup.ErrUnavailable, false, again, false, false},
		{dedup.ErrInFlight, false, again, false, false},
		{dedup.ErrClaimLost, false, again, false, false},
		{dedup.ErrUnknownCommit, false, again, false, false},
		{dedup.ErrUnknownOutcome, false, answer, true, false},
		{dedup.ErrUnknownOutcome, true, again, false, false},
		{dedup.ErrConflict, true, answer, false, false},
		{dedup.ErrGivenUp, true, answer, false, false},
		{dedup.ErrNoResult, true, answer, false, false},
		{dedup.ErrResult, true, answer, false, false},
	} {
		name := fmt.Sprintf("%v, rerun %v", c.err, c.rerun)
		err := c.err
		if err != nil {
			err = errors.Join(errors.New("wrapped"), err)
		}
		r := replyOf(7, false, err, c.rerun)
		require.Equal(t, c.again, r.again != nil, name)
		require.Equal(t, c.unknown, r.unknown, name)
		require.Equal(t, c.keeps, r.answer == any(7), name)
	}
}

// A call of setup is an effect of the world: no process makes it, so no fault happens there.
func TestFaults_CallInSetup(t *testing.T) {
	text, broken := SearchDo(t, func(t testing.TB, f *Faults) *shop {
		s := newShop(t, f)
		for range 2 {
			require.NoError(t, s.send(t.Context(), "first", "setup"))
			require.NoError(t, s.send(t.Context(), "other", ""))
		}
		require.Equal(t, []string{"first", "other", "other"}, s.mails)
		return s
	}, charged(fixed, derived), (*shop).state, Guard(dedup.GuardConfig{Rerun: true}), Pairs(0))
	require.False(t, broken, text)
	require.NotContains(t, text, "setup")
}
