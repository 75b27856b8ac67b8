package mysql

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox"
)

// O-04, O-05, O-06: the shards that a relay keeps, gives and takes.
func TestPlanShare(t *testing.T) {
	rows := func(owners ...string) (all []shardRow) {
		for i, o := range owners {
			s := shardRow{shard: i, relay: o}
			if o == "gone" {
				s.expired = true
			}
			all = append(all, s)
		}
		return all
	}
	many := make([]string, outbox.Shards)
	for i := range many {
		many[i] = "me"
	}
	all := func(from, to int) (n []int) {
		for i := from; i < to; i++ {
			n = append(n, i)
		}
		return n
	}
	for name, c := range map[string]struct {
		shards []shardRow
		alive  int
		share  bool
		want   plan
		before int
	}{
		"nothing":                       {nil, 1, true, plan{}, 0},
		"keeps without share":           {rows("me", "", "gone", "other"), 1, false, plan{keep: []int{0}}, 0},
		"takes free and expired":        {rows("me", "", "gone", "other"), 1, true, plan{keep: []int{0}, free: []int{1, 2}, take: 2}, 0},
		"own expired are kept":          {[]shardRow{{relay: "me", expired: true}}, 1, true, plan{keep: []int{0}}, 0},
		"takes no more than its share":  {rows("me", "", "", ""), 32, true, plan{keep: []int{0}, free: []int{1, 2, 3}, take: 1}, 0},
		"gives the surplus":             {rows(many...), 2, true, plan{keep: all(0, 32), give: all(32, 64)}, 0},
		"gives nothing without share":   {rows(many...), 2, false, plan{keep: all(0, 64)}, 0},
		"the first gets the remainder":  {rows(many...), 63, true, plan{keep: all(0, 2), give: all(2, 64)}, 0},
		"the others do not":             {rows(many...), 63, true, plan{keep: all(0, 1), give: all(1, 64)}, 1},
		"takes nothing above its share": {rows("me", ""), 63, true, plan{keep: []int{0}, free: []int{1}}, 1},
		"more relays than shards":       {rows("", "other"), 1000, true, plan{free: []int{0}, take: 1}, 0},
		"a spare":                       {rows("", "other"), 1000, true, plan{free: []int{0}}, 64},
		"no relay seems alive":          {rows("", "me"), 0, true, plan{keep: []int{1}, free: []int{0}, take: 1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, planShare(c.shards, "me", peers{alive: c.alive, before: c.before}, c.share))
		})
	}
}

// O-05: the shares of all relays differ by one at most, and add up to all shards.
func TestPeers_Share(t *testing.T) {
	for alive := 1; alive <= 2*outbox.Shards; alive++ {
		sum := 0
		for before := range alive {
			share := peers{alive: alive, before: before}.share()
			require.GreaterOrEqual(t, share, outbox.Shards/alive)
			require.LessOrEqual(t, share, outbox.Shards/alive+1)
			sum += share
		}
		require.Equal(t, outbox.Shards, sum, "%d relays", alive)
	}
}

// O-13: a shard is held by name and epoch.
func TestFence(t *testing.T) {
	shards := []shardRow{{shard: 0, relay: "me", epoch: 3}, {shard: 1, relay: "other", epoch: 3},
		{shard: 2, relay: "me", epoch: 4}, {shard: 3}}
	mine, lost := fence(shards, "me", []outbox.Lease{{Shard: 4}, {Shard: 3}, {Shard: 2, Epoch: 3}, {Shard: 1, Epoch: 3}, {Shard: 0, Epoch: 3}})
	require.Equal(t, []int{0}, mine)
	require.Equal(t, []int{1, 2, 3, 4}, lost)
}

func TestJudge(t *testing.T) {
	good := settings{charset: "utf8mb4", readOnly: "0", autocommit: 1, increment: 1, flush: 1, sync: 1}
	for name, c := range map[string]struct {
		change   func(*settings)
		problem  string
		warnings int
	}{
		"good":      {func(*settings) {}, "", 0},
		"charset":   {func(s *settings) { s.charset = "latin1" }, "character set", 0},
		"read-only": {func(s *settings) { s.readOnly = "1" }, "read-only", 0},
		"no commit": {func(s *settings) { s.autocommit = 0 }, "autocommit", 0},
		"flush":     {func(s *settings) { s.flush = 2 }, "", 1},
		"sync":      {func(s *settings) { s.sync = 0 }, "", 1},
		"increment": {func(s *settings) { s.increment = 3 }, "", 1},
		"galera":    {func(s *settings) { s.cluster = "ON"; s.flush = 0 }, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := good
			c.change(&s)
			problem, warnings := s.judge()
			require.Contains(t, problem, c.problem)
			require.Equal(t, c.problem == "", problem == "")
			require.Len(t, warnings, c.warnings)
		})
	}
}

func TestIsReadOnly(t *testing.T) {
	for setting, want := range map[string]bool{
		"0": false, "OFF": false, "1": true, "ON": true, "NO_LOCK": true, "NO_LOCK_NO_ADMIN": true,
	} {
		require.Equal(t, want, isReadOnly(setting), setting)
	}
}

// The slot of a topic and key must be the same in every release.
func TestSlotOf(t *testing.T) {
	require.Equal(t, 2876, slotOf(&outbox.Entry{Topic: "orders", Key: "7"}))
}

func TestClassify(t *testing.T) {
	for number, want := range map[uint16]fault{0: other, 1213: other, 1205: other, 1406: other,
		1146: missing, 1142: noRight, 1053: down, 1290: down} {
		require.Equal(t, want, classify(number), "%d", number)
	}
}
