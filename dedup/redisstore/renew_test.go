package redisstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// heldOf returns n claims whose tokens are known to no server.
func heldOf(n int) []dedup.Claim {
	claims := make([]dedup.Claim, n)
	for i, r := range batchOf("renewed", n) {
		claims[i] = r.Held(dedup.NewToken(), dedup.Answer{Fence: 1})
	}
	return claims
}

// replied is the reply of a script to cmd.
func replied(cmd []string, code string) string {
	return fmt.Sprintf("*4\r\n%s%s:0\r\n%s", bulk(cmd[4]), bulk(code), bulk(""))
}

// a renewal that fails for some keys names them, and the keys that were lost.
func TestRenewNamesTheKeysThatFailed_R06(t *testing.T) {
	claims := heldOf(6)
	var sent atomic.Int64
	s := acquainted(newFake(t, func(cmd []string) string {
		switch sent.Add(1) {
		case 2:
			return "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
		case 3:
			return replied(cmd, "lost")
		case 5:
			return replied(cmd, "what")
		}
		return replied(cmd, "ok")
	}))
	err := s.Renew(t.Context(), long, claims)
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.NotErrorIs(t, err, dedup.ErrClaimLost)
	require.ErrorContains(t, err, "WRONGTYPE")
	var part *dedup.PartError
	require.ErrorAs(t, err, &part)
	require.Equal(t, []int{1, 4}, part.Failed)
	require.Equal(t, []int{2}, part.Lost)
}

// A connection that breaks takes no reply back that was read before.
func TestRenewKeepsTheRepliesBeforeABreak_R06(t *testing.T) {
	var sent atomic.Int64
	s := acquainted(newFake(t, func(cmd []string) string {
		if sent.Add(1) == 3 {
			return ""
		}
		return replied(cmd, "ok")
	}))
	var part *dedup.PartError
	require.ErrorAs(t, s.Renew(t.Context(), long, heldOf(4)), &part)
	require.Equal(t, []int{2, 3}, part.Failed)
	require.Empty(t, part.Lost)
	require.ErrorIs(t, part, dedup.ErrUnavailable)
}

// endsLate is a hook that sets the end of a context as the error of all commands of a pipeline that
// have none, as a client of a cluster does.
type endsLate struct{ redis.Hook }

func (endsLate) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (endsLate) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (endsLate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		_ = next(ctx, cmds)
		for _, cmd := range cmds {
			if cmd.Err() == nil {
				cmd.SetErr(context.DeadlineExceeded)
			}
		}
		return context.DeadlineExceeded
	}
}

// a server that hangs until the context ends fails its own keys only.
func TestRenewReadsRepliesAfterTheContextEnded_R06(t *testing.T) {
	var sent atomic.Int64
	client := newFake(t, func(cmd []string) string {
		if sent.Add(1) == 3 {
			return ""
		}
		return replied(cmd, "ok")
	})
	client.AddHook(endsLate{})
	s := acquainted(client)
	var part *dedup.PartError
	require.ErrorAs(t, s.Renew(t.Context(), long, heldOf(3)), &part)
	require.Equal(t, []int{2}, part.Failed)
	require.ErrorIs(t, part, dedup.ErrUnavailable)

	require.NoError(t, s.Renew(t.Context(), long, heldOf(3)), "all have a reply")
}

// a server that is down gets one pipeline, not one for each thousand keys.
func TestRenewGivesUpAtAServerThatIsDown_R06(t *testing.T) {
	const n = 3*maxPipeline + 1
	var sent atomic.Int64
	s := acquainted(newFake(t, func([]string) string { sent.Add(1); return "" }))
	var part *dedup.PartError
	require.ErrorAs(t, s.Renew(t.Context(), long, heldOf(n)), &part)
	require.Len(t, part.Failed, n)
	require.EqualValues(t, 1, sent.Load())
}

// while one server of a cluster is down, the leases on the others are renewed, also by
// a server that has forgotten the script.
func TestDeadNodeFailsItsOwnRenewals_R06(t *testing.T) {
	p := newPrivateCluster(t)
	s := New(p.client)
	reqs, tok, answers := batchOf("renewed", 60), dedup.NewToken(), make([]dedup.Answer, 60)
	require.NoError(t, s.Claim(t.Context(), tok, time.Hour, reqs, answers))
	var down []int
	held := make([]dedup.Claim, len(reqs))
	for i, a := range answers {
		held[i] = reqs[i].Held(tok, a)
		slot, err := p.nodes[0].ClusterKeySlot(t.Context(), s.key(reqs[i].Key)).Result()
		require.NoError(t, err)
		if p.owner(int(slot)) == 1 {
			down = append(down, i)
		}
	}
	require.NotEmpty(t, down)
	require.NoError(t, s.Renew(t.Context(), time.Hour, held))
	require.NoError(t, p.nodes[2].ScriptFlush(t.Context()).Err())
	_ = p.nodes[1].ShutdownNoSave(t.Context()).Err() // its answer is that it is gone
	err := s.Renew(t.Context(), 2*time.Hour, held)
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	var part *dedup.PartError
	require.ErrorAs(t, err, &part)
	require.Equal(t, down, part.Failed)
	require.Empty(t, part.Lost)
	for i := range held {
		if len(down) > 0 && down[0] == i {
			down = down[1:]
			continue
		}
		ttl, err := p.client.PTTL(t.Context(), s.key(reqs[i].Key)).Result()
		require.NoError(t, err)
		require.Greater(t, ttl, retention+time.Hour, "key %d", i)
	}
}
