package redisstore

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

var someOrigin = dedup.Origin{
	Topic: "orders", Partition: 3, Offset: 123_456_789, Time: time.UnixMilli(1_790_000_000_123).UTC(),
}

func someRecords() map[string]record {
	t := dedup.NewToken()
	far := dedup.Origin{Topic: "tøpic\x00:{1}%", Partition: math.MaxInt32, Offset: math.MaxInt64}
	return map[string]record{
		"pending": {state: pending, token: t, fence: 1, lease: 30_000, total: 86_430_000, first: someOrigin},
		"pending, all": {
			state: pending, uncertain: true, check: 0xfffefdfc, token: t, fingerprint: dedup.Fingerprint{0, 1, 15: 0xff},
			fence: maxInt, failures: math.MaxUint32, takeovers: math.MaxUint32,
			position: dedup.Position{Generation: math.MaxUint32, Retry: math.MaxUint32}, lease: maxInt, total: maxInt, first: far,
		},
		"open":                {state: open, token: t, fence: 7, total: 1, first: dedup.Origin{Partition: -1, Offset: -1}},
		"reopened":            {state: open, reopened: true, position: dedup.Position{Generation: 1}, total: 5},
		"done":                {state: done, token: t, fence: 300, first: someOrigin},
		"done, checksum":      {state: done, token: t, fingerprint: dedup.Checksum(nil), fence: 300, first: someOrigin},
		"done, result":        {state: done, token: t, result: dedup.Result{Schema: 1 << 31, Data: []byte{0, 255, 10}}},
		"done, schema only":   {state: done, token: t, fence: 1, result: dedup.Result{Schema: 9}},
		"done, empty data":    {state: done, token: t, fence: 1, result: dedup.Result{Data: []byte{}}},
		"dead":                {state: dead, token: t, fence: 1, total: 9, reason: "no such\x00 customer"},
		"dead without reason": {state: dead, token: t, fence: 1, total: 9},
	}
}

func TestRecordRoundTrip(t *testing.T) {
	for name, want := range someRecords() {
		t.Run(name, func(t *testing.T) {
			value := want.encode()
			got, err := decode(value, want.check)
			require.NoError(t, err)
			require.Equal(t, want, got)

			for n := range len(value) { // cut short it is never another record of the same meaning
				if short, err := parse(value[:n]); err == nil {
					require.NotEqual(t, want, short)
				}
			}
			if want.state != dead && want.result.IsZero() {
				_, err = parse(value + "\x00")
				require.ErrorIs(t, err, errRecord, "something follows")
			}
		})
	}
}

// A fingerprint is small, because a record is kept for each event.
func TestBytesOfAFingerprint(t *testing.T) {
	r := someRecords()["done"]
	plain := len(r.encode())
	for want, f := range map[int]dedup.Fingerprint{4: dedup.Checksum(nil), 16: {15: 1}} {
		r.fingerprint = f
		require.Len(t, r.encode(), plain+want)
	}
}

// A completion is recognised as that of its claim by the bytes of the record alone, with a fingerprint too.
func TestHoldsWithAFingerprint(t *testing.T) {
	sum, hash, other := dedup.Checksum(nil), dedup.Fingerprint{15: 1}, dedup.Checksum([]byte("other"))
	var none dedup.Fingerprint
	for _, c := range []struct {
		kept, mine dedup.Fingerprint
		holds      bool
	}{
		{none, none, true}, {none, sum, true}, {sum, sum, true}, {hash, hash, true},
		{sum, none, false}, {sum, hash, false}, {hash, sum, false}, {sum, other, false},
	} {
		r := someRecords()["pending"]
		r.fingerprint = c.kept
		require.Equal(t, c.holds, holds(r.encode(), r.check, &r.token, &c.mine), "kept %x, mine %x", c.kept, c.mine)
	}
}

// a record is only taken for the record of its own key.
func TestRecordOfAnotherKeyIsRefused(t *testing.T) {
	k, other := dedup.Key{Scope: "s", ID: "1"}, dedup.Key{Scope: "s", ID: "2"}
	r := record{state: done, check: checkOf(k), fence: 1}
	_, err := decode(r.encode(), checkOf(other))
	require.ErrorIs(t, err, errForeign)
}

// Rule 35: a record of a version to come is no answer.
func TestRecordOfUnknownVersionIsRefused(t *testing.T) {
	r := record{state: done, fence: 1}
	for _, v := range []byte{0, 2, '1', 255} {
		_, err := parse(string(v) + r.encode()[1:])
		require.ErrorIs(t, err, errVersion)
	}
}

// Rule 35: the records of version 1 as they lie on servers. A later release must read them, and one that writes other bytes
// needs another version: workers of both releases share a server during a deployment.
func TestRecordsOfVersion1_Rule35(t *testing.T) {
	fixed := func() dedup.Token { return dedup.Token([]byte("0123456789abcdef")) }
	for want, r := range map[string]record{
		"claimed": {state: pending, check: 0x01020304, token: fixed(), fingerprint: dedup.Checksum([]byte("x")),
			fence: 1, lease: 30_000, total: 86_430_000, first: someOrigin},
		"taken over": {state: pending, uncertain: true, token: fixed(), fingerprint: dedup.Fingerprint([]byte("fingerprint of x")),
			fence: 300, failures: 2, takeovers: 1, lease: 30_000, total: 86_430_000, first: someOrigin},
		"waits for a retry": {state: open, token: fixed(), fence: 1, failures: 1, position: dedup.Position{Retry: 1}, total: 86_400_000, first: someOrigin},
		"reopened":          {state: open, reopened: true, token: fixed(), fence: 2, position: dedup.Position{Generation: 1}, total: 86_400_000, first: someOrigin},
		"done":              {state: done, token: fixed(), fence: 1, first: someOrigin},
		"done, result":      {state: done, token: fixed(), fence: 1, first: someOrigin, result: dedup.Result{Schema: 7, Data: []byte(`{"id":1}`)}},
		"dead":              {state: dead, token: fixed(), fence: 1, total: 86_400_000, first: someOrigin, reason: "poison"},
	} {
		t.Run(want, func(t *testing.T) {
			require.Equal(t, recordsOfVersion1[want], hex.EncodeToString([]byte(r.encode())))
			value, err := hex.DecodeString(recordsOfVersion1[want])
			require.NoError(t, err)
			got, err := parse(string(value))
			require.NoError(t, err)
			require.Equal(t, r, got)
		})
	}
}

var recordsOfVersion1 = map[string]string{
	"done":              "0164000000000030313233343536373839616263646566010000000000001106aab4de75f6b183c598686f7264657273",
	"done, result":      "0164080000000030313233343536373839616263646566010000000000001106aab4de75f6b183c598686f7264657273077b226964223a317d",
	"dead":              "017800000000003031323334353637383961626364656601000000000080b899291106aab4de75f6b183c598686f7264657273706f69736f6e",
	"claimed":           "0170100102030430313233343536373839616263646566a93c5f930100000000b0ea01b0a29b291106aab4de75f6b183c598686f7264657273",
	"taken over":        "017005000000003031323334353637383961626364656666696e6765727072696e74206f662078ac0202010000b0ea01b0a29b291106aab4de75f6b183c598686f7264657273",
	"waits for a retry": "016f00000000003031323334353637383961626364656601010000010080b899291106aab4de75f6b183c598686f7264657273",
	"reopened":          "016f02000000003031323334353637383961626364656602000001000080b899291106aab4de75f6b183c598686f7264657273",
}

func TestRecordRefusesNonsense(t *testing.T) {
	good := record{state: pending, fence: 1, lease: 1, total: 2}
	bad := map[string]func(*record){
		"state":                      func(r *record) { r.state = 'z' },
		"claimed without a lease":    func(r *record) { r.lease = 0 },
		"lease longer than its life": func(r *record) { r.lease = 3 },
		"reopened while claimed":     func(r *record) { r.reopened = true },
		"result while claimed":       func(r *record) { r.result = dedup.Result{Schema: 1} },
		"done with a lease":          func(r *record) { r.state = done },
	}
	_, err := parse(good.encode())
	require.NoError(t, err)
	for name, spoil := range bad {
		r := good
		spoil(&r)
		_, err := parse(r.encode())
		require.ErrorIs(t, err, errRecord, name)
	}
	for _, value := range []string{"", "\x01", "\x01d", "hello", strings.Repeat("\x01", 1000), strings.Repeat("\xff", 40)} {
		_, err := parse(value)
		require.Error(t, err, "%q", value)
	}
}

func TestReasonIsCutBetweenCharacters(t *testing.T) {
	require.Equal(t, "short", cut("short"))
	require.Len(t, cut(strings.Repeat("x", 5000)), dedup.MaxReason)
	require.Equal(t, "x"+strings.Repeat("€", 341), cut("x"+strings.Repeat("€", 400)))
	require.LessOrEqual(t, len(cut(strings.Repeat("\x80", 5000))), dedup.MaxReason)
}

func TestDurationsAreRoundedUp(t *testing.T) {
	require.EqualValues(t, 1, millis(time.Nanosecond))
	require.EqualValues(t, 1, millis(time.Millisecond))
	require.EqualValues(t, 2, millis(time.Millisecond+1))
	require.Less(t, 2*millis(math.MaxInt64), int64(maxInt))
}

// FuzzRecord: no value makes the parser panic, and the parser accepts exactly the values that
// encode writes.
func FuzzRecord(f *testing.F) {
	for _, r := range someRecords() {
		f.Add([]byte(r.encode()))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := parse(string(value))
		if err != nil {
			require.Equal(t, record{}, r)
			return
		}
		require.Equal(t, string(value), r.encode())
	})
}
