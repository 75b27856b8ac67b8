package dedup_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// TestKey_Compare: requests of all stores ascend by tenant, scope, type and ID (P-04).
func TestKey_Compare(t *testing.T) {
	ascending := []dedup.Key{
		{Tenant: "a", Scope: "b", Type: "b", ID: "b"},
		{Tenant: "b", Scope: "a", Type: "b", ID: "b"},
		{Tenant: "b", Scope: "b", Type: "a", ID: "b"},
		{Tenant: "b", Scope: "b", Type: "b", ID: "a"},
		{Tenant: "b", Scope: "b", Type: "b", ID: "b"},
	}
	for i, a := range ascending {
		for j, b := range ascending {
			require.Equal(t, cmp.Compare(i, j), a.Compare(b), "%v and %v", a, b)
		}
	}
}

// TestKey_TextsDiffer: different keys have different texts, also if a part looks like an escaped
// one.
func TestKey_TextsDiffer(t *testing.T) {
	texts := make(map[string]dedup.Key)
	parts := []string{"a:b", "a%3Ab", "a%253Ab", "a{b", "a%7Bb", "a%", "a", "a%25", "a\x1f", "a%1F"}
	for _, tenant := range parts {
		for _, id := range parts {
			k := dedup.Key{Tenant: tenant, ID: id}
			other, used := texts[k.String()]
			require.False(t, used, "%+v and %+v", k, other)
			texts[k.String()] = k
		}
	}
}

// TestPosition_Before: a replay supersedes all attempts of the generation before (T-05).
func TestPosition_Before(t *testing.T) {
	at := func(generation, retry uint32) dedup.Position {
		return dedup.Position{Generation: generation, Retry: retry}
	}
	ascending := []dedup.Position{at(0, 0), at(0, 1), at(0, 9), at(1, 0), at(1, 2), at(2, 0)}
	for i, a := range ascending {
		for j, b := range ascending {
			require.Equal(t, i < j, a.Before(b), "%v and %v", a, b)
		}
	}
}

// The text of a key is one allocation. Appending the text needs no allocation.
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
