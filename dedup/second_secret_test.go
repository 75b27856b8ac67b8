package dedup_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

func TestRequestDiffers_G08(t *testing.T) {
	one, two, three := dedup.Keyed([]byte("s1"), nil), dedup.Keyed([]byte("s2"), nil),
		dedup.Keyed([]byte("s3"), nil)
	sum, other := dedup.Checksum([]byte("a")), dedup.Checksum([]byte("b"))
	var none dedup.Fingerprint
	for name, c := range map[string]struct {
		known, first, second dedup.Fingerprint
		want, counts         bool
	}{
		"the first":                        {one, one, none, false, false},
		"another, no second":               {two, one, none, true, false},
		"the first of two":                 {one, one, two, false, true},
		"the second":                       {two, one, two, false, true},
		"neither":                          {three, one, two, true, true},
		"record without one":               {none, one, two, false, true},
		"request without a first":          {three, none, two, false, false},
		"record with a checksum":           {sum, one, two, false, true},
		"checksum, record with a hash":     {one, sum, two, false, false},
		"checksums: a second never counts": {sum, other, sum, true, false},
		"checksum and a hash":              {other, sum, two, true, false},
		"hash and a checksum":              {two, one, sum, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := dedup.Request{Fingerprint: c.first, SecondFingerprint: c.second}
			require.Equal(t, c.want, r.Differs(c.known))
			require.Equal(t, c.counts, r.Second() != nil)
		})
	}
}

// Golden: RFC 4231, test case 2, cut to 16 bytes.
func TestKeyed(t *testing.T) {
	f := dedup.Keyed([]byte("Jefe"), []byte("what do ya want for nothing?"))
	require.Equal(t, dedup.Fingerprint{0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e,
		0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7}, f)
	require.Equal(t, dedup.ByFingerprint, f.Comparison())
}

func TestDo_SecretRotation_G08(t *testing.T) {
	store, older, newer := memstore.New(), []byte("older-0123456789"), []byte("newer-0123456789")
	steps := [][2][]byte{{older}, {older, newer}, {newer, older}, {newer}}
	call := func(step [2][]byte, key dedup.Key, payload string) (bool, error) {
		g := dedup.NewGuard(store, dedup.GuardConfig{}) // each is another process
		defer g.Close()
		opts := []dedup.DoOption{dedup.SamePayload(dedup.Keyed(step[0], []byte(payload)))}
		if step[1] != nil {
			opts = append(opts, dedup.OrSamePayload(dedup.Keyed(step[1], []byte(payload))))
		}
		_, replayed, err := dedup.Do(t.Context(), g, key,
			func(context.Context) (int, error) { return 1, nil }, opts...)
		return replayed, err
	}
	for i := range steps[1:] {
		for _, pair := range [][2]int{{i, i + 1}, {i + 1, i}} {
			key := dedup.Key{Scope: "pay", ID: string(rune('a'+pair[0])) + string(rune('a'+pair[1]))}
			_, err := call(steps[pair[0]], key, "7")
			require.NoError(t, err)
			replayed, err := call(steps[pair[1]], key, "7")
			require.NoError(t, err, "from step %d to %d", pair[0], pair[1])
			require.True(t, replayed)
			_, err = call(steps[pair[1]], key, "8")
			require.ErrorIs(t, err, dedup.ErrConflict)
		}
	}
}
