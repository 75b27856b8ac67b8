package redisstore

import (
	"strings"
	"testing"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// a Redis that evicts is refused, and the error names the setting and the remedy.
func TestCheckRefusesEviction(t *testing.T) {
	addr := testenv.RedisServer(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--appendonly", "yes")
	_, err := onServer(t, addr).Check(t.Context())
	require.ErrorContains(t, err, "allkeys-lru")
	require.ErrorContains(t, err, "CONFIG SET maxmemory-policy noeviction")
	require.NotErrorIs(t, err, dedup.ErrUnavailable, "waiting does not help")

	warnings, err := onServer(t, addr, AllowEviction()).Check(t.Context())
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "allkeys-lru")

	b := onServer(t, addr)
	require.NoError(t, b.rdb.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	warnings, err = b.Check(t.Context())
	require.NoError(t, err, "the fix works")
	require.Empty(t, warnings)
}

// Check warns if persistence is off, or unknown.
func TestCheckWarnsOfMissingPersistence(t *testing.T) {
	warnings, err := onServer(t, testenv.RedisServer(t, "--appendonly", "no")).Check(t.Context())
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "appendonly")
}

func TestCheckReadsInfo(t *testing.T) {
	for name, c := range map[string]struct {
		info     string
		err      string
		warnings []string
	}{
		"fit":          {info: "redis_version:7.2.4\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n"},
		"old":          {info: "redis_version:6.2.14\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n", err: "6.2.14"},
		"newer":        {info: "redis_version:10.0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n"},
		"ttl eviction": {info: "redis_version:7.0.0\r\nmaxmemory_policy:volatile-ttl\r\n", err: "volatile-ttl"},
		"shows nothing": {
			info: "# Server\r\n",
			warnings: []string{
				"INFO does not show maxmemory-policy", "INFO does not show whether", "cannot read the version",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(newFake(t, atItsTime(func([]string) string { return bulk(c.info) })))
			warnings, err := s.Check(t.Context())
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Len(t, warnings, len(c.warnings))
			for i, w := range c.warnings {
				require.Contains(t, warnings[i], w)
			}
		})
	}
}

func TestCheckWithoutInfo(t *testing.T) {
	for _, text := range []string{"NOPERM this user has no permissions to run 'info'", "ERR unknown command 'info'"} {
		warnings, err := New(newFake(t, atItsTime(func([]string) string { return "-" + text + "\r\n" }))).Check(t.Context())
		require.NoError(t, err)
		require.Len(t, warnings, 1)
		require.Contains(t, warnings[0], "+info")
	}
	_, err := New(newFake(t, func([]string) string { return "-LOADING Redis is loading\r\n" })).Check(t.Context())
	require.ErrorIs(t, err, dedup.ErrUnavailable, "it will tell later")
}

func atItsTime(answer func([]string) string) func([]string) string {
	return func(cmd []string) string {
		if cmd[0] == "time" {
			return "*2\r\n" + bulk("1800000000") + bulk("0")
		}
		return answer(cmd)
	}
}

// G-12: without this right no claim would ever be granted.
func TestCheckWithoutTime(t *testing.T) {
	refused := func([]string) string { return "-NOPERM this user has no permissions to run the 'time' command\r\n" }
	_, err := New(newFake(t, refused)).Check(t.Context())
	require.ErrorContains(t, err, "+time")
	require.NotErrorIs(t, err, dedup.ErrUnavailable, "waiting does not help")
}

// G-12: a refusal is recognised at the top and inside a script, in the words of each release.
func TestLacksRight_G12(t *testing.T) {
	for text, want := range map[string]bool{
		"NOPERM User idem has no permissions to run the 'hset' command":                     true,
		"NOPERM this user has no permissions to access one of the keys used as arguments":   true,
		"ERR The user executing the script can't run this command or subcommand script: x":  true,
		"ERR The user executing the script can't access at least one of the keys mentioned": true,
		"ERR ACL failure in script: User idem has no permissions to run the 'get' command":  true,
		"ERR Error running script: the user executing the script can't run this command":    false,
		"ERR unknown command 'hkeys'":                                                               false,
		"NOAUTH Authentication required.":                                                           false,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                         false,
		"OOM command not allowed when used memory > 'maxmemory'. ACL failure in script":             false,
		"READONLY You can't write against a read only replica. The user executing the script can't": false,
	} {
		err := New(newFake(t, func([]string) string { return "-" + text + "\r\n" })).Ping(t.Context())
		require.ErrorIs(t, err, dedup.ErrUnavailable, text)
		require.Equal(t, want, lacksRight(err), text)
	}
	require.False(t, lacksRight(nil))
}

// G-12: a set-up error names the rights that its call needs, and no right of another call.
func TestRightsFor_G12(t *testing.T) {
	const cluster = " +cluster|slots"
	for verb, own := range map[string]string{"claim": "", "check": "", "register": "", "types": " +hkeys", "forget": " +del"} {
		require.Equal(t, consumerRights+own, rightsFor(verb, false), verb)
		require.Equal(t, consumerRights+cluster+own, rightsFor(verb, true), verb)
	}
}

// A ring moves the keys of a failed server to servers that have never heard of them.
func TestCheckRefusesRing(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	t.Cleanup(func() { _ = ring.Close() })
	_, err := New(ring).Check(t.Context())
	require.ErrorContains(t, err, "redis.Ring")
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
}

func TestInfoLines(t *testing.T) {
	info := make(map[string]string)
	readInfo(info, strings.Join([]string{"# Memory", "a:1", "b:x:y", "", "c"}, "\r\n"))
	require.Equal(t, map[string]string{"a": "1", "b": "x:y"}, info)
}
