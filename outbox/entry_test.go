package outbox_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

func valid() outbox.Entry {
	return outbox.Entry{Topic: "orders", Key: "7", Type: "order.paid", ID: "e-1", Payload: []byte("{}")}
}

// An entry that could never be published, or never be remembered by a store, is refused when it is
// added.
func TestCheck(t *testing.T) {
	const max = 1000
	header := func(key, value string) func(*outbox.Entry) {
		return func(e *outbox.Entry) { e.Headers = append(e.Headers, idem.Header{Key: key, Value: []byte(value)}) }
	}
	for name, bad := range map[string]func(*outbox.Entry){
		"no topic":            func(e *outbox.Entry) { e.Topic = "" },
		"topic of dots":       func(e *outbox.Entry) { e.Topic = ".." },
		"topic with a blank":  func(e *outbox.Entry) { e.Topic = "my orders" },
		"long topic":          func(e *outbox.Entry) { e.Topic = strings.Repeat("t", 250) },
		"long key":            func(e *outbox.Entry) { e.Key = strings.Repeat("k", outbox.MaxKey+1) },
		"no type":             func(e *outbox.Entry) { e.Type = "" },
		"type with NUL":       func(e *outbox.Entry) { e.Type = "a\x00b" },
		"no ID":               func(e *outbox.Entry) { e.ID = "" },
		"long ID":             func(e *outbox.Entry) { e.ID = strings.Repeat("i", 256) },
		"ID that is no UTF-8": func(e *outbox.Entry) { e.ID = "\xff" },
		"own header":          header("event-id", "e-1"),
		"header of Idem":      header("idem-retry", "1"),
		"unnamed header":      header("", "1"),
		"other ce_id":         header("ce_id", "e-2"),
		"other ce_type":       header("ce_type", "order.lost"),
		"too large":           func(e *outbox.Entry) { e.Payload = make([]byte, max) },
		"too large by headers": func(e *outbox.Entry) {
			for range 30 {
				header("a-header-of-some-length", "and a value")(e)
			}
		},
	} {
		e := valid()
		require.NoError(t, e.Check(max))
		bad(&e)
		require.ErrorIs(t, e.Check(max), outbox.ErrEntry, name)
	}
	for name, good := range map[string]func(*outbox.Entry){
		"longest key":     func(e *outbox.Entry) { e.Key = strings.Repeat("\xff", outbox.MaxKey) },
		"no key":          func(e *outbox.Entry) { e.Key = "" },
		"tombstone":       func(e *outbox.Entry) { e.Payload = nil },
		"CloudEvents":     func(e *outbox.Entry) { header("ce_id", "e-1")(e); header("ce_type", "order.paid")(e) },
		"repeated header": func(e *outbox.Entry) { header("a", "1")(e); header("a", "2")(e) },
	} {
		e := valid()
		good(&e)
		require.NoError(t, e.Check(2*outbox.MaxKey), name)
	}
}

// The ID of an event depends on each part of its parent and of its entry, and on these parts only
// (rule 23).
func TestID_Rule23(t *testing.T) {
	parent := dedup.Key{Tenant: "acme", Scope: "orders", Type: "payment.completed", ID: "p-1"}
	base := outbox.Entry{Topic: "orders", Key: "7", Type: "order.paid"}
	id := outbox.ID(parent, &base)
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, id)

	same := base
	same.Payload, same.Headers = []byte("now: another time"), []idem.Header{{Key: "a"}}
	require.Equal(t, id, outbox.ID(parent, &same))

	ids := map[string]string{id: "base"}
	differs := func(what string, parent dedup.Key, change func(*outbox.Entry)) {
		e := base
		change(&e)
		other := outbox.ID(parent, &e)
		require.NotContains(t, ids, other, what)
		ids[other] = what
	}
	nothing := func(*outbox.Entry) {}
	for what, change := range map[string]func(*dedup.Key){
		"tenant": func(k *dedup.Key) { k.Tenant = "other" }, "scope": func(k *dedup.Key) { k.Scope = "mails" },
		"type": func(k *dedup.Key) { k.Type = "payment.failed" }, "id": func(k *dedup.Key) { k.ID = "p-2" },
	} {
		k := parent
		change(&k)
		differs("parent's "+what, k, nothing)
	}
	differs("topic", parent, func(e *outbox.Entry) { e.Topic = "stock" })
	differs("key", parent, func(e *outbox.Entry) { e.Key = "8" })
	differs("type", parent, func(e *outbox.Entry) { e.Type = "order.sent" })
	differs("name", parent, func(e *outbox.Entry) { e.Name = "line 1" })
	differs("parts moved", parent, func(e *outbox.Entry) { e.Key, e.Name = "", "7" })
}

// A given ID stays. A given parent precedes that of the context. With several parents one must be
// given. Without a parent each ID is new.
func TestIdentify(t *testing.T) {
	parent, said := dedup.Key{Scope: "s", Type: "t", ID: "1"}, dedup.Key{Scope: "s", Type: "t", ID: "2"}
	e := outbox.Entry{ID: "mine", Parent: said}
	require.NoError(t, e.Identify(parent, true))
	require.Equal(t, "mine", e.ID)

	e = outbox.Entry{Type: "x", Parent: said}
	want := outbox.ID(said, &e)
	require.NoError(t, e.Identify(parent, true))
	require.Equal(t, want, e.ID)

	e = outbox.Entry{Type: "x", Parent: said}
	require.NoError(t, e.Identify(dedup.Key{}, true), "a batch, and it is said")
	require.Equal(t, want, e.ID)
	e = outbox.Entry{Type: "x"}
	require.ErrorIs(t, e.Identify(dedup.Key{}, true), outbox.ErrNoParent)
	require.Empty(t, e.ID)

	ids, last := map[string]bool{}, ""
	for range 1000 {
		e := outbox.Entry{Type: "x"}
		require.NoError(t, e.Identify(dedup.Key{}, false))
		require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, e.ID)
		require.GreaterOrEqual(t, e.ID[:13], last, "it ascends with time")
		ids[e.ID], last = true, e.ID[:13]
	}
	require.Len(t, ids, 1000)
}

// Entries are sorted by aggregate, and keep their order within one (rule 22).
func TestSort_Rule22(t *testing.T) {
	entries := []outbox.Entry{
		{Topic: "b", Key: "1", ID: "1"}, {Topic: "a", Key: "2", ID: "2"}, {Topic: "a", Key: "1", ID: "4"}, {Topic: "a", Key: "2", ID: "1"},
		{Topic: "a", Key: "1", ID: "3"},
	}
	outbox.Sort(entries)
	var order []string
	for _, e := range entries {
		order = append(order, e.Topic+e.Key+e.ID)
	}
	require.Equal(t, []string{"a14", "a13", "a22", "a21", "b11"}, order)
}
