package ops

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A value that would be gigabytes when it is indented is shown as it came. A look at a dead letter
// must not end the program.
func TestShowBytes_DeeplyNested(t *testing.T) {
	deep := func(levels, items int) []byte {
		return []byte(strings.Repeat("[", levels) + strings.Repeat("1,", items) + "1" + strings.Repeat("]", levels))
	}
	for _, b := range [][]byte{deep(9_990, 21_000), deep(9_990, 0), deep(30_000, 0), deep(600, 2_000)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s := showBytes(b, "")
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
		require.Equal(t, "text", s.Kind)
		require.Equal(t, string(b), s.Text)
	}
	s := showBytes(deep(100, 100), "")
	require.Equal(t, "JSON", s.Kind)
}

// The estimated size of indented JSON is never below the real one.
func FuzzWidens(f *testing.F) {
	for _, text := range []string{`{"a":[1,{"b":"\"[,"}],"c":{}}`, `[[[1,2]]]`, `{"a\\":"}"}`, `[ 1 , 2 ]`, `[]`, `[{},[]]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		if json.Indent(&out, b, "", "  ") == nil && out.Len() > 0 {
			require.True(t, widens(b, out.Len()-1))
		}
	})
}
