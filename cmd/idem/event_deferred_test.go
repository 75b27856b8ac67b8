package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// An event that joined a queue before anybody claimed it has no record. The command explains how to
// find it, and shows the Kafka key as its producer wrote it (rule 4).
func TestGetOfADeferredEventWithoutRecord(t *testing.T) {
	s, known := memory()
	part := dedup.DeferredPartition{Scope: "billing", Topic: "orders", Partition: 2}
	head, follower := inScope("order", "head"), inScope("order", "follower")
	finish(t, s, claim(t, s, head, dedupOrigin(1)), "failed: broken")
	var events []dedup.Deferred
	for i, key := range []dedup.Key{head, follower} {
		events = append(events, dedup.Deferred{Key: key, Queue: "kcustomer-7", Origin: dedupOrigin(int64(i)), Data: []byte("{}")})
	}
	require.NoError(t, s.Defer(t.Context(), part, events))
	get := []string{"event", "get", "follower", "-G", "billing", "--store", inMemory, "--type", "order"}
	commandWith(t, known, "", get...).failed(t, exitFound, "--type and --topic")
	out := commandWith(t, known, "", append(get, "--topic", "orders")...).ok(t)
	require.Contains(t, out, `key "customer-7"`)
	require.Contains(t, out, `behind "head"`)
	require.NotContains(t, out, "with claims", "nobody knows that")
	none := commandWith(t, known, "", "event", "get", "nobody", "-G", "billing", "--store", inMemory, "--type", "order", "--topic", "orders")
	none.failed(t, exitFound, "not known")
	require.NotContains(t, none.stderr, "--topic")
}
