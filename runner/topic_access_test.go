package runner

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAccessOf sorts what a broker answers. Brokers before 2.3 do not tell rights.
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
