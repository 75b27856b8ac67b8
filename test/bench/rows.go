package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// row is one consumer under measurement.
type row struct {
	name  string
	about string
	unit  string // of the rate
	spec  spec

	consume func(ctx context.Context, x *run) error // until ctx ends; an error fails the row
	check   check
	after   string // start with the tables of this row; default: empty tables
	again   bool   // wait for every delivery, instead of every event

	empty      bool                                    // empty topic: the row publishes, or needs no records
	aggregates int                                     // of the events that are added to an outbox
	backlog    func(ctx context.Context, x *run) error // writes those that wait in it before the run

	sql     engine                                                 // of the tables; nil: Postgres
	pay     func(ctx context.Context, tx pgx.Tx, p *payment) error // work of a transactional handler
	runner  newRunner                                              // nil: that on sarama
	lanes   int                                                    // Idem's; 0: the default
	takes   time.Duration                                          // time of a handler; 0: no time
	fill    int                                                    // rows in the store before the run
	options []idem.Option                                          // of the handler
	compact bool                                                   // the layout of Idem's store in Postgres
	core    bool                                                   // in bench-quick
}

// check is how the effects are verified.
type check uint8

const (
	inProcess check = iota // by the count of the handler
	inOrders               // by the orders that were paid
	inAccounts
	inOutbox // by the orders, and the events that wait to be published
	inTopic  // by the records in a topic that was empty
	nothing  // there are no effects
)

// sizes has the numbers of deliveries of the topics. A row takes a topic that lasts for a few
// seconds.
type sizes struct{ bulk, fast, medium, slow, dynamo, sleepy, latency, outbox, writes int }

var (
	fullSizes = sizes{
		bulk:    720_000,
		fast:    240_000,
		medium:  80_000,
		slow:    24_000,
		dynamo:  3000,
		sleepy:  18_000,
		latency: 1000,
		outbox:  60_000,
		writes:  12_000,
	}
	quickSizes = sizes{
		bulk:    480_000,
		fast:    120_000,
		medium:  40_000,
		slow:    12_000,
		dynamo:  1500,
		sleepy:  9_000,
		latency: 300,
		outbox:  20_000,
		writes:  6000,
	}
)

const (
	effects    = "effects/s"
	deliveries = "deliveries/s"
	events     = "events/s"
)

// allRows returns the rows in the order in which a round runs them.
func allRows(n sizes) []row {
	of := func(deliveries int) spec { return spec{deliveries: deliveries, partitions: 6, seed: 1} }
	rows := []row{
		{
			name:    "sarama-bare",
			about:   "sarama, the handler does nothing, no dedup",
			spec:    of(n.bulk),
			consume: bareSarama,
			check:   nothing,
			again:   true,
			core:    true,
		},
		{
			name:    "naive-postgres",
			about:   "one transaction an event, sarama",
			spec:    of(n.slow),
			consume: naivePostgres,
			check:   inOrders,
			pay:     payOwn,
			core:    true,
		},
		{
			name:    "franz-naive-postgres",
			about:   "one transaction an event, franz-go",
			spec:    of(n.slow),
			consume: franzNaivePostgres,
			check:   inOrders,
			pay:     payOwn,
		},
		{
			name:    "idem-ontx",
			about:   "OnTx, a statement an event",
			spec:    of(n.medium),
			consume: idemOnTx,
			check:   inOrders,
			pay:     payOwn,
			core:    true,
		},
		{
			name:    "franz-ontx",
			about:   "the same, on franz-go",
			spec:    of(n.medium),
			consume: idemOnTx,
			check:   inOrders,
			pay:     payOwn,
			runner:  onFranz,
		},
		{
			name:    "idem-ontx-single",
			about:   "OnTx, one transaction an event",
			spec:    of(n.slow),
			consume: idemOnTx,
			check:   inOrders,
			pay:     payOwn,
			options: []idem.Option{idem.TxPerEvent()},
		},
		{
			name:    "sql-limit",
			about:   "the SQL of full batches alone, no Kafka",
			spec:    of(n.fast),
			consume: sqlLimit,
			check:   inOrders,
			core:    true,
		},
		{
			name:    "pgstore-alone",
			about:   "the same by ClaimTx of pgstore, no Kafka, no engine",
			spec:    of(n.fast),
			consume: storeAlone,
			check:   inOrders,
		},
		{
			name:    "idem-onbatchtx",
			about:   "OnBatchTx, one UPDATE ... = ANY a batch",
			spec:    of(n.fast),
			consume: idemOnBatchTx,
			check:   inOrders,
			core:    true,
		},
		{
			name:    "franz-onbatchtx",
			about:   "the same, on franz-go",
			spec:    of(n.fast),
			consume: idemOnBatchTx,
			check:   inOrders,
			runner:  onFranz,
		},
		{
			name:    "idem-duplicates",
			about:   "the same topic again, the store full",
			unit:    deliveries,
			spec:    of(n.fast),
			consume: idemDuplicates,
			check:   inOrders,
			after:   "idem-onbatchtx",
			again:   true,
			core:    true,
		},
		{
			name:    "idem-onbatchtx-otel",
			about:   "the same with all metrics and spans, encoded",
			spec:    of(n.fast),
			consume: idemOnBatchTxOtel,
			check:   inOrders,
			core:    true,
		},
		{
			name:    "watermill-dedup",
			about:   "Watermill, Deduplicator in a map, nothing durable",
			spec:    of(n.fast),
			consume: watermillDedup,
		},
		{
			name:    "naive-redis",
			about:   "GET, SETNX, SET an event, sarama",
			spec:    of(n.medium),
			consume: naiveRedis,
			core:    true,
		},
		{
			name:    "franz-naive-redis",
			about:   "GET, SETNX, SET an event, franz-go",
			spec:    of(n.medium),
			consume: franzNaiveRedis,
		},
		{
			name:    "idem-redis-on",
			about:   "On, Redis, 16 lanes",
			spec:    of(n.fast),
			consume: idemOnRedis,
			lanes:   16,
			core:    true,
		},
		{
			name:    "franz-redis-on",
			about:   "On, Redis, 16 lanes, on franz-go",
			spec:    of(n.fast),
			consume: idemOnRedis,
			lanes:   16,
			runner:  onFranz,
		},
		{
			name:    "redis-limit",
			about:   "the commands of full batches alone, plain connections, no Kafka",
			spec:    of(n.bulk),
			consume: redisLimit,
			core:    true,
		},
		{
			name:    "idem-redis-onbatch",
			about:   "OnBatch, Redis",
			spec:    of(n.bulk),
			consume: idemOnBatchRedis,
			core:    true,
		},
		{
			name:    "idem-postgres-on",
			about:   "On, Postgres, 16 lanes",
			spec:    of(n.slow),
			consume: idemOnPostgres,
			lanes:   16,
			core:    true,
		},
	}
	rows = append(rows, decoderRows(rows)...)
	rows = append(rows, sharedRows(n)...)
	rows = append(rows, kafkaGoRows(n)...)
	rows = append(rows, watermillRows(n)...)
	rows = append(rows, sqlRows(n)...)
	rows = append(rows, dynamoRows(n)...)
	rows = append(rows, slowRows(n)...)
	rows = append(rows, publishRows(n)...)
	rows = append(rows, addRows(n)...)
	for i := range rows {
		r := &rows[i]
		if r.unit == "" {
			r.unit = effects
		}
	}
	return rows
}

// sharedRows add to 1,000 accounts from 12 partitions, one lane each.
func sharedRows(n sizes) []row {
	s := spec{deliveries: n.slow, partitions: 12, seed: 2}
	return []row{
		{
			name:    "naive-postgres-shared",
			about:   "one transaction an event on 1,000 accounts, 12 partitions",
			spec:    s,
			consume: naivePostgres,
			check:   inAccounts,
			pay:     payShared,
		},
		{
			name:    "idem-ontx-shared",
			about:   "OnTx on 1,000 accounts, 12 partitions, one lane each",
			spec:    s,
			consume: idemOnTx,
			check:   inAccounts,
			pay:     payShared,
			lanes:   1,
		},
	}
}

const slowHandler = 20 * time.Millisecond

// slowRows have handlers that wait, as for an API: 6 partitions, 100 keys each.
func slowRows(n sizes) []row {
	s := spec{deliveries: n.sleepy, partitions: 6, keys: 100, once: true, seed: 3}
	one := s
	one.deliveries = n.sleepy / 16
	return []row{
		{
			name:    "slow-one",
			about:   "a handler of 20 ms, one lane a partition",
			spec:    one,
			consume: idemOnRedis,
			takes:   slowHandler,
			lanes:   1,
		},
		{
			name:    "slow-lanes",
			about:   "a handler of 20 ms, 16 lanes a partition",
			spec:    s,
			consume: idemOnRedis,
			takes:   slowHandler,
			lanes:   16,
		},
	}
}

// storeRows run OnBatchTx on a store with many events, with time-ordered and random IDs.
func storeRows(n sizes, large bool) []row {
	fills := []struct {
		rows int
		name string
	}{{100_000, "1e5"}, {1_000_000, "1e6"}, {10_000_000, "1e7"}}
	if !large {
		fills = fills[:2]
	}
	var rows []row
	for _, compact := range []bool{false, true} {
		layout := "readable"
		if compact {
			layout = "compact"
		}
		for _, random := range []bool{false, true} {
			ids := "ordered"
			if random {
				ids = "random"
			}
			for _, f := range fills {
				rows = append(rows, row{
					name: layout + "-" + ids + "-" + f.name, about: "OnBatchTx, " + f.name + " events remembered, IDs " + ids + ", " + layout,
					unit: effects, spec: spec{deliveries: n.fast, partitions: 6, random: random, seed: 4}, consume: idemOnBatchTx,
					check: inOrders, fill: f.rows, compact: compact,
				})
			}
		}
	}
	return rows
}
