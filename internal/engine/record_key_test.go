package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// Messages without an ID and without a place have idempotency keys of their own.
func TestRecordKey(t *testing.T) {
	key := dedup.Key{Scope: "billing", Type: "paid"}
	idOf := func(m idemtype.Message) string { return recordKey(key, &m).ID }
	at := func(offset int64, value string, headers ...idemtype.Header) idemtype.Message {
		return idemtype.Message{Topic: "payments", Offset: offset, Value: []byte(value), Headers: headers}
	}
	require.NotEqual(t, idOf(at(0, "a")), idOf(at(1, "a")), "places differ")
	require.Equal(t, idOf(at(0, "a")), idOf(at(0, "b")), "one place")
	require.NotEqual(t, idOf(at(-1, "a")), idOf(at(-1, "b")), "contents differ")
	require.NotEqual(t, idOf(at(-1, "a")), idOf(at(-1, "a", idemtype.Header{Key: "uuid", Value: []byte("1")})))
	first, again := at(-1, "a"), at(-1, "a")
	require.Equal(t, idOf(first), idOf(again), "the message comes again")
}
