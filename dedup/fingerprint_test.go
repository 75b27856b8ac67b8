package dedup_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

func TestFingerprint_Compared(t *testing.T) {
	a, b := dedup.Checksum([]byte("a")), dedup.Checksum([]byte("b"))
	x, y := dedup.Fingerprint{1, 15: 1}, dedup.Fingerprint{1, 15: 2}
	var none dedup.Fingerprint
	for _, c := range []struct {
		a, b   dedup.Fingerprint
		differ bool
	}{
		{a, a, false}, {a, b, true}, {x, x, false}, {x, y, true},
		{a, x, false}, {none, none, false}, {none, a, false}, {none, x, false},
	} {
		require.Equal(t, c.differ, dedup.Differ(c.a, c.b), "%x %x", c.a, c.b)
		require.Equal(t, c.differ, dedup.Differ(c.b, c.a), "%x %x", c.b, c.a)
	}
}

func TestFingerprint_Bytes(t *testing.T) {
	for want, f := range map[int]dedup.Fingerprint{0: {}, 4: dedup.Checksum(nil), 16: {15: 1}} {
		b := f.Bytes()
		require.Len(t, b, want)
		require.Equal(t, want == 4, f.IsChecksum())
		got, ok := dedup.ParseFingerprint(b)
		require.True(t, ok)
		require.Equal(t, f, got)
	}
	for _, bad := range [][]byte{{1}, {0, 0, 0, 0}, {1, 2, 3, 4, 5}, make([]byte, 16), {1, 15: 0}, make([]byte, 17)} {
		_, ok := dedup.ParseFingerprint(bad)
		require.False(t, ok, "%x", bad)
	}
	require.NotZero(t, dedup.Checksum(nil), "a tombstone is compared too")
	require.Equal(t, dedup.Fingerprint{0xe3, 0x06, 0x92, 0x83}, dedup.Checksum([]byte("123456789")), "CRC-32C's own test value")
}
