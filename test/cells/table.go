package cells

import (
	"strings"
	"sync"
)

// kind is how the work of an event or a call runs.
type kind string

// The kinds. The first five handle records of a consumer group. The last one publishes the rows of
// an outbox. The others are calls with a key.
const (
	on             kind = "On"
	careful        kind = "On with DeadLetterUncertain"
	onBatch        kind = "OnBatch"
	onTx           kind = "OnTx"
	onBatchTx      kind = "OnBatchTx"
	do             kind = "Do"
	doRerun        kind = do + withRerun
	doTx           kind = "DoTx"
	doTxRerun      kind = doTx + withRerun
	viaHTTP        kind = "HTTP"
	viaHTTPRerun   kind = viaHTTP + withRerun
	viaHTTPTx      kind = "HTTPTx"
	viaHTTPTxRerun kind = viaHTTPTx + withRerun
	relays         kind = "Outbox relay"

	// withRerun ends the name of a kind if its guard or middleware has the option Rerun.
	withRerun = " with Rerun"
)

var kinds = []kind{
	on, careful, onBatch, onTx, onBatchTx, do, doRerun, doTx, doTxRerun, viaHTTP, viaHTTPRerun,
	viaHTTPTx, viaHTTPTxRerun, relays,
}

// reruns reports whether the option Rerun is set.
func (k kind) reruns() bool { return strings.HasSuffix(string(k), withRerun) }

// base returns the kind without the option Rerun.
func (k kind) base() kind { return kind(strings.TrimSuffix(string(k), withRerun)) }

// inTx reports whether claim, effect and completion share one transaction.
func (k kind) inTx() bool { return strings.HasSuffix(string(k.base()), "Tx") }

// records reports whether the work handles records of Kafka.
func (k kind) records() bool { return strings.HasPrefix(string(k), "On") }

// store is a store with its server.
type store string

// The stores.
const (
	pg        store = "pgstore"
	sqlPG     store = "sqlstore, Postgres"
	sqlMaria  store = "sqlstore, MariaDB"
	onSQLite  store = "sqlstore, SQLite"
	onRedis   store = "redisstore"
	onCluster store = "redisstore, cluster"
	onDynamo  store = "dynamostore"
	inMemory  store = "memstore"
)

var stores = []store{pg, sqlPG, sqlMaria, onSQLite, onRedis, onCluster, onDynamo, inMemory}

func (s store) hasTx() bool { return s == pg || s == sqlPG || s == sqlMaria || s == onSQLite }

// hasServer reports whether a connection leads to the store.
func (s store) hasServer() bool { return s != onSQLite && s != inMemory }

// hasOutbox reports whether the database of the store has an outbox with a relay of its own.
func (s store) hasOutbox() bool { return s == pg || s == sqlMaria }

// step is the place of a fault in the work.
type step string

// The steps, in the order of the work. In a transaction the end is COMMIT, else the completion. For
// a relay the claim is the fetch of rows, the effect is their publication, and the end is their
// settlement.
const (
	beforeClaim  step = "before the claim"
	afterClaim   step = "after the claim"
	beforeEffect step = "before the effect"
	beforeAck    step = "effect without answer" // of the broker
	afterEffect  step = "after the effect"
	beforeEnd    step = "before the end"
	beforeAnswer step = "end without answer"
	afterEnd     step = "after the end"
)

var steps = []step{
	beforeClaim, afterClaim, beforeEffect, beforeAck, afterEffect, beforeEnd, beforeAnswer, afterEnd,
}

func (s step) inHandler() bool { return s == beforeEffect || s == afterEffect }

// inWindow reports whether the effect lies before the step, and the end was not recorded.
func (s step) inWindow() bool { return s == beforeAck || s == afterEffect || s == beforeEnd }

// onTheWire reports whether a server has acted, and its answer is held back.
func (s step) onTheWire() bool { return s == beforeAck || s == beforeAnswer }

// fault is the event that disturbs the work.
type fault string

// The faults.
const (
	kill         fault = "kill -9"
	panics       fault = "panic"
	hang         fault = "hang"
	stop         fault = "SIGSTOP beyond the lease"
	cutBefore    fault = "cut before the server acts"
	cutAfter     fault = "cut after the server acted"
	restart      fault = "server restarted"
	rebalance    fault = "rebalance"
	kafkaRestart fault = "Kafka restarted"
	copied       fault = "copy elsewhere"
	unsent       fault = "cut before the broker acts"
	unacked      fault = "cut after the broker acted"
)

var faults = []fault{
	kill, panics, hang, stop, cutBefore, cutAfter, restart, rebalance, kafkaRestart, copied, unsent,
	unacked,
}

// ofBroker reports whether the connection to Kafka is cut.
func (f fault) ofBroker() bool { return f == unsent || f == unacked }

// combination is one point of the full product.
type combination struct {
	kind  kind
	step  step
	store store
	fault fault
}

func (c combination) String() string {
	return string(c.kind) + "/" + string(c.store) + "/" + string(c.fault) + "/" + string(c.step)
}

// product returns every combination, in the order of the tables.
func product() (all []combination) {
	for _, k := range kinds {
		for _, f := range faults {
			for _, s := range steps {
				for _, at := range stores {
					all = append(all, combination{k, s, at, f})
				}
			}
		}
	}
	return all
}

// cells returns the combinations that are run. Callers do not change the slice.
var cells = sync.OnceValue(func() (all []combination) {
	for _, c := range product() {
		if reason(c) == "" {
			all = append(all, c)
		}
	}
	return all
})

// The reasons why a combination is no cell.
const (
	noRerun      = "httpidem.NewTx refuses Rerun: a transaction leaves no outcome unknown"
	noOutbox     = "the store has no outbox with a relay of its own"
	noTx         = "the store has no transactions"
	inProcess    = "the store lives in the process: nothing of it is left for a second process"
	noConnection = "no connection leads to the store, and no server answers"
	noData       = "DynamoDB Local keeps its data in memory: a restart removes the table"
	noGroup      = "a call, or a relay, belongs to no consumer group"
	noKafka      = "a call uses no broker"
	onlyHandlers = "the fault is one of the handler's code"
	nothingToCut = "no request follows, or its answer is awaited: that is the cut after the server acted"
	noRequest    = "the server acts on requests only: the claim and the end"
	noHandler    = "a relay runs no handler"
	noPublisher  = "only a relay waits for the broker between effect and end"
	noMessage    = "no message is on its way to the broker"
)

// reason returns why c is no cell, or the empty string for a cell. The first reason counts.
func reason(c combination) string {
	switch {
	case c.kind == viaHTTPTxRerun:
		return noRerun
	case c.kind == relays && !c.store.hasOutbox():
		return noOutbox
	case c.kind == relays && (c.fault == panics || c.fault == hang):
		return noHandler
	case c.kind != relays && (c.step == beforeAck || c.fault.ofBroker()):
		return noPublisher
	case c.fault == unsent && c.step != beforeEffect, c.fault == unacked && c.step != beforeAck:
		return noMessage
	case c.kind.inTx() && !c.store.hasTx():
		return noTx
	case c.fault == kafkaRestart && !c.kind.records() && c.kind != relays:
		return noKafka
	case c.store == inMemory && c.fault != panics && c.fault != kafkaRestart:
		return inProcess
	case !c.store.hasServer() && (c.step == beforeAnswer || c.fault == cutBefore ||
		c.fault == cutAfter || c.fault == restart):
		return noConnection
	case c.store == onDynamo && c.fault == restart:
		return noData
	case c.fault == rebalance && !c.kind.records():
		return noGroup
	case (c.fault == panics || c.fault == hang) && !c.step.inHandler():
		return onlyHandlers
	case c.fault == cutBefore && (c.step.onTheWire() || c.step == afterEnd):
		return nothingToCut
	case c.fault == cutAfter && c.step != afterClaim && c.step != beforeAnswer:
		return noRequest
	}
	return ""
}
