package ops

import (
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/groups"
)

// Dead letters that were there yesterday do not keep the start page amber for ever; new ones do.
func TestStart_OldDeadLettersAreCalm(t *testing.T) {
	var w deadLetterWatch
	now := time.Now()
	level := func(records, ends int64) string {
		s := &startView{}
		g := &groupState{DeadLetters: []deadLetterTopic{{Topic: "t", Records: records, Ends: ends}}}
		s.glanceDeadLetters(g, &w, now)
		require.Len(t, s.Alerts, 1)
		return s.Alerts[0].Level
	}
	require.Equal(t, "warn", level(5, 5), "nobody knows how old they are")
	now = now.Add(59 * time.Minute)
	require.Equal(t, "warn", level(5, 5))
	now = now.Add(2 * time.Minute)
	require.Equal(t, "info", level(5, 5))
	require.Equal(t, "warn", level(6, 6))
	now = now.Add(2 * time.Hour)
	require.Equal(t, "info", level(3, 6), "some were purged")
	require.Equal(t, "warn", level(4, 7))
	now = now.Add(2 * time.Hour)
	require.Equal(t, "warn", level(4, 8), "one was purged, and there is a new one")
}

// Any change of the ends may be a new dead letter, also a lower sum.
func TestDeadLetterWatch(t *testing.T) {
	var w deadLetterWatch
	begin := time.Now()
	require.Zero(t, w.quiet(100, begin))
	require.Equal(t, time.Hour, w.quiet(100, begin.Add(time.Hour)))
	require.Zero(t, w.quiet(50, begin.Add(25*time.Hour)), "a topic was made anew")
	require.Equal(t, time.Minute, w.quiet(50, begin.Add(25*time.Hour+time.Minute)))
	require.Zero(t, w.quiet(51, begin.Add(26*time.Hour)))
}

// notAllKnown is the state of a group without the right to see its members, and with partitions
// without a leader.
func notAllKnown() groupState {
	away := sarama.ErrLeaderNotAvailable
	return stateOf(&groups.State{
		Group: "billing", MembersErr: sarama.ErrGroupAuthorizationFailed,
		Partitions: []groups.Partition{
			{Topic: "orders", Partition: 0, Kind: groups.Source, Err: away},
			{Topic: "orders", Partition: 1, Kind: groups.Source, Err: away},
			{Topic: fakeTopic, Partition: 0, Kind: groups.DeadLetters, Err: away},
			{Topic: fakeTopic, Partition: 1, Kind: groups.DeadLetters},
		},
	})
}

// Numbers that are not known are no zeros, and members that are not known may be there.
func TestStart_NotKnown(t *testing.T) {
	g := notAllKnown()
	var w deadLetterWatch
	s := &startView{}
	s.glanceGroup(part[groupState]{Value: g})
	s.glanceDeadLetters(&g, &w, time.Now())
	require.Empty(t, s.Alerts, "nothing bad is known either")
	require.Len(t, s.Glance, 2)
	for _, one := range s.Glance {
		require.Empty(t, one.Level, one.Name)
		require.Equal(t, notKnown, one.Value, one.Name)
	}
	said := strings.Join(s.Unknown, "\n")
	require.Contains(t, said, "Kafka: the members are not known: ")
	require.Contains(t, said, "Kafka: the lag of 2 partitions is not known: ")
	require.Contains(t, said, "Kafka: the dead letters of 1 topic are not wholly known ("+fakeTopic+"): ")
	require.True(t, w.grew.IsZero(), "a part of the ends is no sum")

	p := &partitionsView{Group: part[groupState]{Value: g}}
	p.join(time.Now(), nil)
	require.Equal(t, 2, p.Topics[0].NotKnown)
	for _, r := range p.Topics[0].Rows {
		require.EqualValues(t, -1, r.Lag)
		require.Equal(t, "warn", r.Level)
	}
}

// What is known of a part is shown, with the rest named.
func TestStart_PartlyKnown(t *testing.T) {
	away := sarama.ErrLeaderNotAvailable
	g := stateOf(&groups.State{
		Members: []groups.Member{{Client: "worker"}},
		Partitions: []groups.Partition{
			{Topic: "orders", Partition: 0, Kind: groups.Source, Lag: 7, End: 9},
			{Topic: "orders", Partition: 1, Kind: groups.Source, Err: away},
			{Topic: fakeTopic, Partition: 0, Kind: groups.DeadLetters, Begin: 4, End: 9, Lag: 5},
			{Topic: fakeTopic, Partition: 1, Kind: groups.DeadLetters, Err: away},
		},
	})
	s := &startView{}
	s.glanceGroup(part[groupState]{Value: g})
	s.glanceDeadLetters(&g, &deadLetterWatch{}, time.Now())
	require.Equal(t, "7", s.Glance[0].Value)
	require.Equal(t, "1 partition not known, 1 member", s.Glance[0].Note)
	require.Equal(t, "5", s.Glance[1].Value)
	require.Equal(t, "warn", s.Glance[1].Level)
	require.Len(t, s.Unknown, 2)

	known := stateOf(&groups.State{})
	s = &startView{}
	s.glanceGroup(part[groupState]{Value: known})
	s.glanceDeadLetters(&known, &deadLetterWatch{}, time.Now())
	require.Empty(t, s.Unknown)
	require.Equal(t, "ok", s.Glance[1].Level)
	require.Equal(t, "The group has no members", s.Alerts[0].Title)
}

// The pages do not say that there is no problem, or that there are no members.
func TestPages_NotKnown(t *testing.T) {
	s := serve(t, quietConfig(), sources{group: &fakeSource[groupState]{value: notAllKnown()}})
	body := s.get("").body
	require.Contains(t, body, "Not everything could be looked at")
	require.NotContains(t, body, "found no problem")
	require.NotContains(t, body, "no members")
	body = s.get("partitions").body
	require.Contains(t, body, "The members are not known.")
	require.Contains(t, body, "2 partitions not known")
	require.NotContains(t, body, "no member")
	require.NotContains(t, body, "no reader")
}

// A dead-letter topic that the page may not describe is no group without dead letters.
func TestPages_HiddenDeadLetters(t *testing.T) {
	letters := newFakeDeadLetters()
	letters.none = true
	s := serve(t, quietConfig(), sources{deadLetters: letters, group: &fakeSource[groupState]{value: stateOf(&groups.State{
		Members: []groups.Member{{Client: "worker"}},
		Partitions: []groups.Partition{{
			Topic: fakeTopic, Partition: -1, Kind: groups.DeadLetters, Err: sarama.ErrTopicAuthorizationFailed,
		}},
	})}})
	body := s.get("").body
	require.Contains(t, body, "the dead letters of 1 topic are not wholly known ("+fakeTopic+")")
	require.Contains(t, body, notKnown)
	body = s.get("dead-letters").body
	require.NotContains(t, body, "no event was given up")
	require.Contains(t, body, fakeTopic)
	require.Contains(t, body, "not authorized")
}

// A partition is judged by what is known of it.
func TestPartitionRow_Judge(t *testing.T) {
	now, committed := time.Now(), int64(1000)
	for name, c := range map[string]struct {
		row         partitionRow
		level, note string
	}{
		"caught up":             {partitionRow{Kafka: &groupPartition{Member: "a"}}, "ok", "has caught up"},
		"another process":       {partitionRow{Kafka: &groupPartition{Member: "a"}, Lag: 3}, "info", "read by another process"},
		"no reader":             {partitionRow{Kafka: &groupPartition{Lag: 3}, Lag: 3}, "bad", "no reader"},
		"no reader, no lag":     {partitionRow{Kafka: &groupPartition{}}, "warn", "no reader"},
		"hidden reader":         {partitionRow{Kafka: &groupPartition{Lag: 3}, Lag: 3, Hidden: true}, "info", "the reader is not known"},
		"hidden reader, no lag": {partitionRow{Kafka: &groupPartition{}, Hidden: true}, "ok", "has caught up"},
		"not known":             {partitionRow{Kafka: &groupPartition{Problem: "no leader"}}, "warn", "no leader"},
		"beyond the end": {
			partitionRow{Kafka: &groupPartition{Committed: &committed, End: 200, Member: "a", Beyond: true}},
			"bad", "committed 1000 is beyond the end 200: was the topic made anew?",
		},
		"beyond the end, here": {
			partitionRow{
				Kafka: &groupPartition{Committed: &committed, End: 200, Beyond: true},
				Here:  &partitionState{Stalled: time.Minute},
			},
			"bad", "committed 1000 is beyond the end 200: was the topic made anew?",
		},
		"at rest": {
			partitionRow{Kafka: &groupPartition{Lag: 3}, Lag: 3, Here: &partitionState{Stalled: time.Minute}},
			"bad", "at rest for 1 min",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.row.judge(now)
			require.Equal(t, []string{c.level, c.note}, []string{c.row.Level, c.row.Note})
		})
	}
}

// A committed offset beyond the end is no lag of zero, and the start page names it.
func TestStart_BeyondTheEnd(t *testing.T) {
	committed := int64(1000)
	g := stateOf(&groups.State{
		Members: []groups.Member{{Client: "worker"}},
		Partitions: []groups.Partition{{
			Topic: "orders", Kind: groups.Source, Committed: &committed, End: 200, Lag: 200, Beyond: true,
		}},
	})
	s := &startView{}
	s.glanceGroup(part[groupState]{Value: g})
	require.Equal(t, "200", s.Glance[0].Value)
	require.Len(t, s.Alerts, 1)
	require.Equal(t, "bad", s.Alerts[0].Level)
	require.Equal(t, "1 partition with a committed offset beyond its end", s.Alerts[0].Title)
}
