package dedup_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// The text of a key is one allocation, and none if it is appended.
func TestKey_TextAllocates(t *testing.T) {
	k := dedup.Key{Tenant: "acme:1", Scope: "billing", Type: "payment.captured", ID: "0190f3b4-5c2a-7abc-8def-0123456789ab"}
	long := dedup.Key{Scope: "s", Type: "t", ID: strings.Repeat("x", 200)}
	for _, k := range []dedup.Key{k, long, {}} {
		require.Equal(t, "prefix "+k.String(), string(k.Append([]byte("prefix "))))
	}
	var text string
	buffer := make([]byte, 0, 256)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { text = k.String() }), 1.0)
	require.Zero(t, testing.AllocsPerRun(100, func() { buffer = k.Append(buffer[:0]) }))
	require.Equal(t, text, string(buffer))
	require.Equal(t, "acme%3A1:billing:payment.captured:0190f3b4-5c2a-7abc-8def-0123456789ab", text)
}
