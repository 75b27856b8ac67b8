package identity

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// G-02: deep nesting neither ends the process nor hides the event ID. The limit is that of
// encoding/json.
func TestJSONMember_Deep_G02(t *testing.T) {
	for _, depth := range []int{1, 100, 9_000, 20_000, 10_000_000} {
		for _, c := range [][2]string{{"[", "]"}, {`{"a":`, "}"}} {
			inner := strings.Repeat(c[0], depth) + "1" + strings.Repeat(c[1], depth)
			value := fmt.Appendf(nil, `{"deep":%s,"event_id":"7"}`, inner)
			id, err := member(value, "event_id")
			if depth < 10_000 {
				require.NoError(t, err)
				require.Equal(t, `"7"`, string(id))
			} else {
				require.ErrorIs(t, err, ErrNotJSON)
			}
			if depth < 100_000 {
				require.Equal(t, json.Valid(value), err == nil, depth)
			}
			_, err = member(value[:len(value)/2], "event_id")
			require.ErrorIs(t, err, ErrNotJSON, "cut off")
		}
	}
}
