package outboxtest

import (
	"context"
	"testing"

	"github.com/idem-go/idem/outbox"
)

// Outbox is an outbox for relays and operators.
type Outbox interface {
	outbox.Store
	outbox.Operator
}

// Site is an outbox in tables of its own, with its database. Tx is a transaction of the service.
// The pool must have at least 12 connections. All fields are required. The functions are called by
// many goroutines at once.
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
	// LoseRow deletes a row and sets the counter of Seq back, as a fail-over that loses commits. The
	// next row gets the same Seq.
	LoseRow func(ctx context.Context, seq int64) error
	// LockShard locks the row of a shard as Retry and Skip do, until unlock is called.
	LockShard func(ctx context.Context, shard int) (unlock func() error, err error)
}

// testCase is one test of the kit.
type testCase[Tx any] struct {
	name string
	run  func(*kit[Tx])
}

// Run runs all tests. site returns a new Site, and releases its resources by t.Cleanup.
func Run[Tx any](t *testing.T, site func(t testing.TB) Site[Tx]) {
	for _, test := range tests[Tx]() {
		t.Run(test.name, func(t *testing.T) { test.run(newKit(t, site(t))) })
	}
}

func tests[Tx any]() []testCase[Tx] {
	return []testCase[Tx]{
		{name: "RoundTrip", run: func(k *kit[Tx]) { k.roundTrip(false) }},
		{name: "RoundTripAlone", run: func(k *kit[Tx]) { k.roundTrip(true) }},
		{name: "RolledBack", run: (*kit[Tx]).rolledBack},
		{name: "Savepoint", run: (*kit[Tx]).savepoint},
		{name: "RefusedEntries", run: (*kit[Tx]).refusedEntries},
		{name: "LateCommitIsFetched", run: (*kit[Tx]).lateCommit},
		{name: "NumbersFollowCommits", run: (*kit[Tx]).numbersFollowCommits},
		{name: "ManyAtOnce", run: (*kit[Tx]).manyAtOnce},
		{name: "FetchIsBounded", run: (*kit[Tx]).fetchIsBounded},
		{name: "RowAboveBytes", run: (*kit[Tx]).rowAboveBytes},
		{name: "OldestFirst", run: (*kit[Tx]).oldestFirst},
		{name: "SkipLists", run: (*kit[Tx]).skipLists},
		{name: "SettleIsFenced", run: (*kit[Tx]).settleIsFenced},
		{name: "NumberGivenTwice", run: (*kit[Tx]).numberGivenTwice},
		{name: "ParkedNumberGivenTwice", run: (*kit[Tx]).parkedNumberGivenTwice},
		{name: "States", run: (*kit[Tx]).states},
		{name: "BlockedBeforeSkip", run: (*kit[Tx]).blockedBeforeSkip},
		{name: "BlockedWhileReleased", run: (*kit[Tx]).blockedWhileReleased},
		{name: "ReleaseHoldsTheShard", run: (*kit[Tx]).releaseHoldsTheShard},
		{name: "SettlementsAtOnce", run: (*kit[Tx]).settlementsAtOnce},
		{name: "RelaysDoNotWaitForWriters", run: (*kit[Tx]).relaysDoNotWait},
		{name: "Purge", run: (*kit[Tx]).purge},
		{name: "Backlog", run: (*kit[Tx]).backlog},
		{name: "RelaysShare", run: (*kit[Tx]).relaysShare},
		{name: "RelaysShareEvenly", run: (*kit[Tx]).relaysShareEvenly},
		{name: "LeaveIsOfOneRelay", run: (*kit[Tx]).leaveIsOfOneRelay},
		{name: "LeasesEnd", run: (*kit[Tx]).leasesEnd},
		{name: "ExpiredLease", run: (*kit[Tx]).expiredLease},
		{name: "LockedShard", run: (*kit[Tx]).lockedShard},
		{name: "RelaysHoldAtOnce", run: (*kit[Tx]).relaysHoldAtOnce},
		{name: "FreeShardsAreTakenOnce", run: (*kit[Tx]).freeShardsAreTakenOnce},
		{name: "Relay", run: (*kit[Tx]).relay},
	}
}

// RoundTrip runs one short test of adding, fetching and settling on a new site, for further
// settings of its connections.
func RoundTrip[Tx any](t *testing.T, site Site[Tx]) { newKit(t, site).roundTrip(false) }

// RoundTripAlone is [RoundTrip] with one transaction for each entry.
func RoundTripAlone[Tx any](t *testing.T, site Site[Tx]) { newKit(t, site).roundTrip(true) }
