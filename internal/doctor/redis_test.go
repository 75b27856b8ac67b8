package doctor

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// A cluster before its slots are assigned has no master to ask.
func TestExamine_RedisClusterWithoutSlots(t *testing.T) {
	_, bus, err := net.SplitHostPort(testenv.FreeAddr(t))
	require.NoError(t, err)
	addr := testenv.RedisServer(t, "--cluster-enabled", "yes", "--cluster-port", bus)
	single := redis.NewClient(&redis.Options{Addr: addr})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}})
	for _, client := range []redis.UniversalClient{single, cluster} {
		t.Cleanup(func() { _ = client.Close() })
		r, err := Examine(t.Context(), Input{Group: "g", Stores: []Store{{Redis: client}}})
		require.NoError(t, err)
		require.Equal(t, Bad, worst(r, "redis.cluster").Verdict, "%T: %+v", client, r)
		require.Contains(t, worst(r, "redis.cluster").Detail, "no slot is assigned")
	}
}

// serverError is an error that a Redis server has sent.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

// A person who changes rights during an outage mends nothing.
func TestClusterRemedy(t *testing.T) {
	for name, c := range map[string]struct {
		err        error
		user, want string
	}{
		"no right":          {err: serverError("NOPERM this user has no permissions"), user: "w", want: "ACL SETUSER w +cluster|info"},
		"no right, no user": {err: serverError("NOPERM this user has no permissions"), want: "ACL SETUSER default +cluster|info"},
		"a loading server":  {err: serverError("LOADING Redis is loading the dataset in memory")},
		"no answer":         {err: context.DeadlineExceeded},
		"a lost connection": {err: fmt.Errorf("read: %w", io.EOF)},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, clusterRemedy(c.err, c.user))
		})
	}
}
