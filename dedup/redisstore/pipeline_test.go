package redisstore

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A cluster client has the method that reload looks for.
var _ interface{ ReloadState(context.Context) } = (*redis.ClusterClient)(nil)

// reloading counts the look-ups of masters.
type reloading struct {
	*redis.Client
	reloads int
}

func (r *reloading) ReloadState(context.Context) { r.reloads++ }

// the masters are looked up again if a server does not answer, and not if it refuses.
func TestExecReloads_R14(t *testing.T) {
	for name, c := range map[string]struct {
		replies []string // an empty one: the server dies
		reloads int
		fails   bool
	}{
		"answered":                  {replies: []string{"+OK\r\n", "+OK\r\n"}},
		"refused":                   {replies: []string{"-ERR no\r\n", "+OK\r\n"}},
		"no answer":                 {replies: []string{""}, reloads: 1, fails: true},
		"no answer to the second":   {replies: []string{"+OK\r\n", ""}, reloads: 1, fails: true},
		"refused, then no answer":   {replies: []string{"-ERR no\r\n", ""}, reloads: 1, fails: true},
		"answered, in another form": {replies: []string{":1\r\n", "$-1\r\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			left := c.replies
			answer := func([]string) string {
				reply := left[0]
				left = left[1:]
				return reply
			}
			client := &reloading{Client: newFake(t, answer)}
			cmds := []*redis.Cmd{redis.NewCmd(t.Context(), "ping"), redis.NewCmd(t.Context(), "ping")}
			err := exec(t.Context(), client, cmds)
			require.Equal(t, c.fails, err != nil, "%v", err)
			require.Equal(t, c.reloads, client.reloads)
			for i := len(c.replies) - 1; i >= 0 && c.replies[i] == ""; i-- {
				require.Error(t, cmds[i].Err(), "each command without an answer has an error of its own")
			}
		})
	}
	t.Run("a client of one server", func(t *testing.T) {
		client := newFake(t, func([]string) string { return "" })
		require.Error(t, exec(t.Context(), client, []*redis.Cmd{redis.NewCmd(t.Context(), "ping")}))
	})
}
