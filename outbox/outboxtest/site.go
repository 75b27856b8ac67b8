package outboxtest

import (
	"context"
	"testing"

	"github.com/idem-go/idem/outbox"
)

// Outbox is what the tests need of an outbox.
type Outbox interface {
	outbox.Store
	outbox.Operator
}

// Site is an outbox in tables of its own, with its database. Tx is a transaction of the service. The
// pool must have at least 12 connections. All fields are required. The functions are called by many
// goroutines at once.
type Site[Tx any] struct {
	// Outbox is the outbox under test.
	Outbox Outbox
	// Begin begins a transaction of the service.
	Begin func(ctx context.Context) (Tx, error)
	// Commit and Rollback end a transaction.
	Commit, Rollback func(ctx context.Context, tx Tx) error
	// Add adds entries in a transaction or savepoint.
	Add func(ctx context.Context, tx Tx, entries ...outbox.Entry) error
	// Savepoint sets a savepoint. inner is the transaction for Add in the savepoint. Either undo or
	// keep is called.
	Savepoint func(ctx context.Context, tx Tx) (inner Tx, undo, keep func(context.Context) error,
		err error)
	// States returns the state of each row by the ID of its event: 0 waits, 1 sent, 2 parked, 3
	// blocked.
	States func(ctx context.Context) (map[string]int, error)
	// ExpireShards ends the leases of shards, a moment ago. Nil: those of all shards.
	ExpireShards func(ctx context.Context, shards []int) error
	// ExpireRelays ends the life of all relays, a moment ago.
	ExpireRelays func(ctx context.Context) error
	// LockShard locks the row of a shard as Retry and Skip do, until unlock is called.
	LockShard func(ctx context.Context, shard int) (unlock func() error, err error)
}

// Run runs all tests. site returns a new Site, and releases its resources by t.Cleanup.
func Run[Tx any](t *testing.T, site func(t testing.TB) Site[Tx]) {
	tests := []struct {
		name string
		run  func(*kit[Tx])
	}{
		{"RoundTrip", func(k *kit[Tx]) { k.roundTrip(false) }},
		{"RoundTripAlone", func(k *kit[Tx]) { k.roundTrip(true) }},
		{"RolledBack", (*kit[Tx]).rolledBack},
		{"Savepoint", (*kit[Tx]).savepoint},
		{"RefusedEntries", (*kit[Tx]).refusedEntries},
		{"LateCommitIsFetched", (*kit[Tx]).lateCommit},
		{"NumbersFollowCommits", (*kit[Tx]).numbersFollowCommits},
		{"ManyAtOnce", (*kit[Tx]).manyAtOnce},
		{"FetchIsBounded", (*kit[Tx]).fetchIsBounded},
		{"OldestFirst", (*kit[Tx]).oldestFirst},
		{"SkipLists", (*kit[Tx]).skipLists},
		{"SettleIsFenced", (*kit[Tx]).settleIsFenced},
		{"States", (*kit[Tx]).states},
		{"BlockedWhileReleased", (*kit[Tx]).blockedWhileReleased},
		{"ReleaseHoldsTheShard", (*kit[Tx]).releaseHoldsTheShard},
		{"SettlementsAtOnce", (*kit[Tx]).settlementsAtOnce},
		{"RelaysDoNotWaitForWriters", (*kit[Tx]).relaysDoNotWait},
		{"Purge", (*kit[Tx]).purge},
		{"Backlog", (*kit[Tx]).backlog},
		{"RelaysShare", (*kit[Tx]).relaysShare},
		{"ExpiredLease", (*kit[Tx]).expiredLease},
		{"RelaysHoldAtOnce", (*kit[Tx]).relaysHoldAtOnce},
		{"FreeShardsAreTakenOnce", (*kit[Tx]).freeShardsAreTakenOnce},
		{"Relay", (*kit[Tx]).relay},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(newKit(t, site(t))) })
	}
}

// RoundTrip runs one short test of adding, fetching and settling on a new site, for further settings
// of its connections.
func RoundTrip[Tx any](t *testing.T, site Site[Tx]) { newKit(t, site).roundTrip(false) }

// RoundTripAlone is [RoundTrip] with one transaction for each entry.
func RoundTripAlone[Tx any](t *testing.T, site Site[Tx]) { newKit(t, site).roundTrip(true) }
