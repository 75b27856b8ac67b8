package dedup_test

import (
	"context"
	"testing"
	"time"

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

// Calls in one process, of which one has the secrets in the old order and the other in the new one.
func TestDo_SecretRotationInOneProcess_G08(t *testing.T) {
	prints := func(payload string) (older, newer dedup.Fingerprint) {
		return dedup.Keyed([]byte("older-0123456789"), []byte(payload)),
			dedup.Keyed([]byte("newer-0123456789"), []byte(payload))
	}
	for _, swapped := range []bool{false, true} {
		opts := func(payload string, swap bool) []dedup.DoOption {
			first, second := prints(payload)
			if swap {
				first, second = second, first
			}
			return []dedup.DoOption{dedup.SamePayload(first), dedup.OrSamePayload(second)}
		}
		atDesk(t, dedup.GuardConfig{}, func(d *desk) {
			all := together(4, func(i int) (paid, bool, error) {
				time.Sleep(time.Duration(i) * time.Millisecond)
				payload := "7"
				if i > 1 {
					payload = "8"
				}
				return d.do(d.here, time.Second, opts(payload, swapped != (i%2 == 1))...)
			})
			for i, o := range all[:2] {
				require.NoError(d, o.err)
				require.EqualValues(d, 1, o.Receipt)
				require.Equal(d, i == 1, o.replayed)
			}
			for _, o := range all[2:] {
				require.ErrorIs(d, o.err, dedup.ErrConflict)
				require.Less(d, o.after, time.Second, "at once")
			}
			require.EqualValues(d, 1, d.runs.Load())
		})
	}
}
