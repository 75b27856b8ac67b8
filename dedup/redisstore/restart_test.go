package redisstore

import (
	"net"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// crash kills the server and lets it start again from its files.
func (b bench) crash() {
	b.Helper()
	before := b.uptime()
	_ = b.rdb.Do(b.Context(), "debug", "crash-and-recover").Err() // the reply does not come
	require.Eventually(b, func() bool {
		now := b.uptime()
		return now != "" && now != before
	}, 10*time.Second, 20*time.Millisecond, "the server does not come back")
}

// uptime has another value after each start of the server; empty if the server does not answer.
func (b bench) uptime() string {
	text, err := b.rdb.Info(b.Context(), "server").Result()
	if err != nil {
		return ""
	}
	info := make(map[string]string)
	readInfo(info, text)
	return info["run_id"]
}

// left makes one event of each fate, before a crash.
func (b bench) left() (holder dedup.Claim) {
	b.Helper()
	require.NoError(b, b.finish(completed(b.held(dedup.Fresh, long, request("done")))))
	require.NoError(b, b.finish(dedup.Completion{
		Claim: b.held(dedup.Fresh, long, request("dead")), Retention: retention, Dead: "poison",
	}))
	b.held(dedup.Fresh, time.Millisecond, request("overdue"))
	return b.held(dedup.Fresh, long, request("held"))
}

// with its append-only file, written before each answer, Redis forgets no record in a crash
// of its own. The time has run on meanwhile. The holder of a claim still has the claim. If a lease
// ended while the server was down, the event is Uncertain, and not forgotten.
func TestRestartWithAppendOnlyFile(t *testing.T) {
	b := onServer(t, testenv.RedisServer(t, "--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "yes"))
	holder := b.left()
	b.crash()
	b.meets(dedup.Done, request("done"))
	require.Equal(t, "poison", b.meets(dedup.Dead, request("dead")).Reason)
	b.meets(dedup.Uncertain, request("overdue"))
	b.meets(dedup.Busy, request("held"))
	require.NoError(t, b.Renew(t.Context(), long, []dedup.Claim{holder}), "also by a server that knows no scripts")
	require.NoError(t, b.finish(completed(holder)))
	b.meets(dedup.Done, request("held"))
}

// without it all records are forgotten, and Check has warned before the first event. The
// holder of a claim gets the error of a lost claim, and the completion is kept.
func TestRestartWithoutPersistence(t *testing.T) {
	b := onServer(t, testenv.RedisServer(t, "--enable-debug-command", "yes"))
	warnings, err := b.Check(t.Context())
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	holder := b.left()
	b.crash()
	require.ErrorIs(t, b.Renew(t.Context(), long, []dedup.Claim{holder}), dedup.ErrClaimLost)
	require.ErrorIs(t, b.finish(completed(holder)), dedup.ErrClaimLost)
	b.meets(dedup.Done, request("held"))
	for _, id := range []string{"done", "dead", "overdue"} {
		b.meets(dedup.Fresh, request(id))
	}
}

// a write that the master acknowledged, and no replica has received, is lost with the master.
// The holder of such a claim gets the error of a lost claim. The setting min-replicas-to-write
// makes a master that is cut off refuse claims.
func TestFailoverForgetsWhatWasNotReplicated(t *testing.T) {
	master := onServer(t, testenv.RedisServer(t, "--repl-diskless-sync-delay", "0"))
	replica := onServer(t, testenv.RedisServer(t))
	ctx := t.Context()
	host, port, err := net.SplitHostPort(master.rdb.Options().Addr)
	require.NoError(t, err)
	require.NoError(t, replica.rdb.ReplicaOf(ctx, host, port).Err())
	early, late := request("early"), request("late")
	known := master.held(dedup.Fresh, long, early)
	require.Eventually(t, func() bool {
		return replica.rdb.Exists(ctx, replica.key(early.Key)).Val() == 1
	}, 20*time.Second, 20*time.Millisecond, "the replica does not follow")
	require.ErrorIs(t, replica.Claim(ctx, dedup.NewToken(), long, []dedup.Request{late}, make([]dedup.Answer, 1)),
		dedup.ErrUnavailable, "a replica grants nothing")

	require.NoError(t, replica.rdb.ReplicaOf(ctx, "NO", "ONE").Err()) // it becomes the master while the old one still answers
	unknown := master.held(dedup.Fresh, long, late)
	replica.meets(dedup.Busy, early)
	require.NoError(t, replica.Renew(ctx, long, []dedup.Claim{known}))
	require.ErrorIs(t, replica.Renew(ctx, long, []dedup.Claim{unknown}), dedup.ErrClaimLost)
	heir := replica.held(dedup.Fresh, long, late) // the window that is documented
	require.ErrorIs(t, replica.Renew(ctx, long, []dedup.Claim{unknown}), dedup.ErrClaimLost)
	require.NoError(t, replica.finish(completed(heir)))

	require.NoError(t, master.rdb.ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	require.Eventually(t, func() bool {
		err := master.Claim(ctx, dedup.NewToken(), long, []dedup.Request{request("cut off")}, make([]dedup.Answer, 1))
		return isUnavailable(err) && redis.HasErrorPrefix(err, "NOREPLICAS")
	}, 20*time.Second, 20*time.Millisecond, "it grants claims alone")
}
