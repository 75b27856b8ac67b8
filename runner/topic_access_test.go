package runner

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// TestAccessOf sorts the answers of a broker. Brokers before 2.3 do not report rights.
func TestAccessOf(t *testing.T) {
	found, err := accessOf([]TopicInfo{
		{Name: "z"},
		{Name: "y", Denied: true},
		{Name: "x", Exists: true, Operations: OpDescribe},
		{Name: "w", Exists: true, Operations: OpDescribe | OpRead},
		{Name: "v", Exists: true, Operations: OpDescribe | OpRead | OpWrite},
		{Name: "u", Exists: true},
		{Name: "r"},
	}, OpRead|OpWrite)
	require.NoError(t, err)
	require.Equal(t, access{missing: []string{"r", "z"}, denied: []string{"w", "x", "y"}}, found)
	broken := errors.New("no answer")
	_, err = accessOf([]TopicInfo{{Name: "a", Err: broken}}, 0)
	require.ErrorIs(t, err, broken)
}

func TestCheckWritable(t *testing.T) {
	all := OpDescribe | OpRead | OpWrite
	a, read := TopicInfo{Name: "a", Exists: true, Operations: all}, TopicInfo{Name: "read", Exists: true, Operations: OpDescribe | OpRead}
	commands := Commands{Brokers: []string{"kafka:9092"}, User: "relay"}
	require.NoError(t, commands.CheckWritable([]TopicInfo{a}))
	err := commands.CheckWritable([]TopicInfo{a, {Name: "c"}, {Name: "b"}, read})
	require.ErrorIs(t, err, idem.ErrNoTopic)
	require.ErrorContains(t, err, "topics do not exist: b, c")
	require.ErrorContains(t, err, "kafka-topics --bootstrap-server kafka:9092 --create --topic b")
	err = commands.CheckWritable([]TopicInfo{read, a})
	require.ErrorIs(t, err, idem.ErrNoTopic)
	require.ErrorIs(t, err, ErrUnauthorized)
	require.ErrorContains(t, err, "--allow-principal User:relay --operation Write --topic read")
	broken := errors.New("no leader")
	err = commands.CheckWritable([]TopicInfo{{Name: "b"}, {Name: "z", Err: broken}})
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, idem.ErrNoTopic)
}

// TestTopicWatch_GrantedAgain_K27: the log does not say that a topic existed again after its right
// was given back.
func TestTopicWatch_GrantedAgain_K27(t *testing.T) {
	cfg, logged, admin := good(), new(strings.Builder), newFakeAdmin("t", "t.g.retry")
	cfg.Logger = slog.New(slog.NewTextHandler(logged, nil))
	list := NewTopicList(GroupTopics{Group: "g"}, "t")
	watch := NewTopicWatch(cfg, admin, Commands{Group: "g"}, list)
	for _, operations := range []Operations{OpDescribe, OpDescribe | OpRead} {
		admin.put("t", operations)
		renew, err := watch.Look(t.Context())
		require.NoError(t, err)
		require.True(t, renew)
	}
	require.Contains(t, logged.String(), "topic must not be read any longer")
	require.Contains(t, logged.String(), "topic can be read again")
}
