package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
)

// onPostgres calls fn with a store of each layout, which the command has to recognise by itself.
func onPostgres(t *testing.T, fn func(t *testing.T, s *pgstore.Store, url string)) {
	for layout, options := range map[string][]pgstore.Option{layoutReadable: nil, layoutCompact: {pgstore.Compact()}} {
		t.Run(layout, func(t *testing.T) {
			url := testenv.Postgres(t)
			command(t, "migrate", "up", "--store", url, "--layout", layout).ok(t)
			s, err := pgstore.Open(t.Context(), url, options...)
			require.NoError(t, err)
			t.Cleanup(s.Close)
			fn(t, s, url)
		})
	}
}

// transact handles an event in a transaction.
func transact(t *testing.T, s *pgstore.Store, key dedup.Key, dead string) {
	t.Helper()
	reqs := []dedup.Request{{Key: key, Origin: dedupOrigin(5), Retention: time.Hour}}
	var answers [1]dedup.Answer
	err := s.ClaimTx(t.Context(), time.Minute, reqs, answers[:], func(pgx.Tx) ([]dedup.Completion, error) {
		if dead == "" {
			return nil, nil
		}
		return []dedup.Completion{{Claim: reqs[0].Held(dedup.Token{}, answers[0]), Retention: time.Hour, Dead: dead}}, nil
	})
	require.NoError(t, err)
}

// The verbs of events on Postgres, in both layouts and both ways, without saying the type.
func TestEventOnPostgres(t *testing.T) {
	const uuid = "0190f3b4-5c2a-7abc-8def-0123456789ab"
	onPostgres(t, func(t *testing.T, s *pgstore.Store, url string) {
		on := func(args ...string) ran {
			return command(t, append(append([]string{"event"}, args...), "--store", url, "-G", "billing")...)
		}
		finish(t, s, claim(t, s, inScope("order", uuid), dedupOrigin(1)), "")
		finish(t, s, claim(t, s, dedup.Key{Scope: "billing", Tenant: "acme", Type: "order", ID: "dead"}, dedupOrigin(2)), "no such account")
		transact(t, s, inScope("payment", "tx-done"), "")
		transact(t, s, inScope("payment", "tx-dead"), "no money")

		require.Contains(t, on("get", uuid).ok(t), "with claims")
		out := on("get", "tx-done").ok(t)
		require.Contains(t, out, "transactional")
		require.Contains(t, out, "orders/2 offset 5")
		require.Contains(t, on("get", "dead").ok(t), "acme")
		on("get", "dead", "--tenant", "other").failed(t, exitFound, "not known", `"other"`)
		on("get", "dead", "--type", "order").failed(t, exitFound, "tenant")
		on("get", "nobody").failed(t, exitFound, "not known")

		on("skip", "tx-done", "-y").failed(t, exitFound, "handled already")
		on("skip", "tx-dead", "-y", "--reason", "refunded").ok(t)
		require.Contains(t, on("get", "tx-dead").ok(t), "discarded: refunded")
		on("release", "tx-dead", "-y").ok(t)
		on("get", "tx-dead").failed(t, exitFound, "not known")
		on("release", uuid, "-y").ok(t)
		require.Equal(t, dedup.Fresh, toldNext(t, s, inScope("order", uuid)))
		on("release", uuid, "-y").failed(t, exitFound, "is being handled")

		var all []listed
		on("list", "--status", "pending", "-o", "json").json(t, &all)
		require.Len(t, all, 1)
		require.Equal(t, uuid, all[0].ID)
		require.Equal(t, "claimed", all[0].State)
		on("list", "--status", "failed", "--until", "1h", "-o", "json").json(t, &all)
		require.Empty(t, all)
		require.Equal(t, 4, strings.Count(on("list").ok(t), "\n"), "a header and three events")
		require.Equal(t, 1, strings.Count(on("list", "--scope", "another").ok(t), "\n"))
	})
}

// Deferred events (rule 4) on Postgres, in both layouts.
func TestDeferredOnPostgres_Rule4(t *testing.T) {
	for name, check := range map[string]func(*testing.T, *pgstore.Store, string, dedup.DeferredPartition){
		"get": func(t *testing.T, _ *pgstore.Store, url string, _ dedup.DeferredPartition) {
			checkDeferredGet(t, nil, url)
		},
		"skip": func(t *testing.T, s *pgstore.Store, url string, part dedup.DeferredPartition) {
			checkDeferredSkip(t, nil, url, s, part)
		},
		"release": func(t *testing.T, s *pgstore.Store, url string, part dedup.DeferredPartition) {
			checkDeferredRelease(t, nil, url, s, part)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onPostgres(t, func(t *testing.T, s *pgstore.Store, url string) { check(t, s, url, deferredEvents(t, s)) })
		})
	}
}

// An imported event is a duplicate for the handler it was imported for, of either kind.
func TestImportToPostgres(t *testing.T) {
	onPostgres(t, func(t *testing.T, s *pgstore.Store, url string) {
		for _, way := range [][]string{nil, {"--tx"}} {
			var c imported
			args := append([]string{"import", "-G", "billing", "--store", url, "-y", "-o", "json", "--type", "payment",
				"--from-table", "SELECT n AS event_id, now() AS time FROM generate_series(1, 2100) n"}, way...)
			command(t, append(args, "--dry-run")...).json(t, &c)
			require.Equal(t, int64(2100), c.Added)
			command(t, args...).json(t, &c)
			require.Equal(t, int64(2100), c.Added, way)
			command(t, args...).json(t, &c)
			require.Equal(t, int64(2100), c.Known, way)
		}
		require.Equal(t, dedup.Done, toldNext(t, s, inScope("payment", "2100")))
		reqs := []dedup.Request{{Key: inScope("payment", "2100"), Origin: dedupOrigin(1), Retention: time.Hour}}
		var answers [1]dedup.Answer
		err := s.ClaimTx(context.WithoutCancel(t.Context()), time.Minute, reqs, answers[:], func(pgx.Tx) ([]dedup.Completion, error) {
			t.Error("an imported event ran")
			return nil, nil
		})
		require.NoError(t, err)
		require.Equal(t, dedup.Done, answers[0].Verdict)
	})
}
