package soak

import "os"

type (
	storeName  string
	kind       string
	clientName string
)

const (
	pg        storeName = "pgstore"
	sqlPG     storeName = "sqlstore, Postgres"
	sqlMaria  storeName = "sqlstore, MariaDB"
	onSQLite  storeName = "sqlstore, SQLite"
	onRedis   storeName = "redisstore"
	onCluster storeName = "redisstore, cluster"
	onDynamo  storeName = "dynamostore"
	inMemory  storeName = "memstore"

	on        kind = "On"
	onBatch   kind = "OnBatch"
	onTx      kind = "OnTx"
	onBatchTx kind = "OnBatchTx"

	saramaClient clientName = "consumer"
	franzGo      clientName = "kgoidem"
	kafkaGo      clientName = "kafkagoidem"
	watermillGo  clientName = "watermillidem"
)

// line is one row of the soak.
type line struct {
	store  storeName
	kind   kind
	client clientName

	events, kills, cuts int  // of the long form
	short               bool // also without IDEM_SOAK, in a form of seconds
}

func (l line) String() string {
	return string(l.kind) + " on " + string(l.store) + " with " + string(l.client)
}

func (k kind) inTx() bool { return k == onTx || k == onBatchTx }

// lines are all rows: three million events, 800 kills, and 1,500 COMMITs that are cut. SQLite has
// one process, and no connection that could be cut. The store in memory ends with its process: its
// row has copies only.
var lines = []line{
	{store: pg, kind: onBatchTx, client: saramaClient, events: 900_000, kills: 100, cuts: 300, short: true},
	{store: pg, kind: onBatchTx, client: franzGo, events: 600_000, kills: 90, cuts: 300},
	{store: pg, kind: onTx, client: saramaClient, events: 150_000, kills: 80, cuts: 300},
	{store: pg, kind: on, client: franzGo, events: 50_000, kills: 60, cuts: 120},
	{store: pg, kind: onTx, client: watermillGo, events: 40_000, kills: 20, cuts: 100},
	{store: sqlPG, kind: onBatchTx, client: kafkaGo, events: 150_000, kills: 30, cuts: 200},
	{store: sqlMaria, kind: onBatchTx, client: saramaClient, events: 200_000, kills: 60, cuts: 300},
	{store: sqlMaria, kind: onTx, client: franzGo, events: 60_000, kills: 60, cuts: 200},
	{store: onSQLite, kind: onBatchTx, client: saramaClient, events: 100_000, kills: 60},
	{store: onRedis, kind: onBatch, client: saramaClient, events: 500_000, kills: 80, cuts: 150},
	{store: onRedis, kind: on, client: franzGo, events: 150_000, kills: 80, cuts: 150, short: true},
	{store: onCluster, kind: onBatch, client: franzGo, events: 200_000, kills: 60, cuts: 150},
	{store: onDynamo, kind: onBatch, client: saramaClient, events: 40_000, kills: 40, cuts: 120},
	{store: inMemory, kind: onBatch, client: saramaClient, events: 100_000},
}

func long() bool { return os.Getenv("IDEM_SOAK") != "" }

// sized returns the row in the form that there is time for.
func (l line) sized() line {
	if !long() {
		l.events, l.kills, l.cuts = 8_000, 4, 6
	}
	return l
}
