package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/kafkalog"
	"github.com/idem-go/idem/internal/testenv"
)

// connect returns a connection for the test's own statements.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execSQL(t testing.TB, conn *pgx.Conn, text string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), text, args...)
	require.NoError(t, err, text)
}

// A business table becomes records, in batches, and again without adding any.
func TestImportTable(t *testing.T) {
	url := testenv.Postgres(t)
	conn := connect(t, url)
	execSQL(t, conn, `CREATE TABLE payments (id uuid, number bigint, at timestamptz, customer text)`)
	execSQL(t, conn, `INSERT INTO payments SELECT gen_random_uuid(), n, now() - n * interval '1 s', 'c' || n % 3 FROM generate_series(1, 2500) n`)
	execSQL(t, conn, `INSERT INTO payments VALUES (NULL, NULL, now(), 'c1'), (gen_random_uuid(), 7, now(), 'c9')`)
	s, known := memory()
	base := []string{"import", "-G", "billing", "--store", inMemory, "--from-url", url, "-o", "json"}
	importing := func(more ...string) (c imported, r ran) {
		r = commandWith(t, known, "", append(base, more...)...)
		r.ok(t)
		r.json(t, &c)
		return c, r
	}
	query := "SELECT number AS event_id, at AS time, customer AS tenant FROM payments;"
	c, r := importing("--from-table", query, "--type", "payment", "--dry-run")
	require.Equal(t, int64(2502), c.Read)
	require.Equal(t, int64(1), c.NoIdentity)
	require.Contains(t, r.stderr, "no event_id")
	require.Zero(t, s.Len(), "a dry run wrote")
	require.Empty(t, r.audits(t))

	commandWith(t, known, "n\n", append(base, "--from-table", query, "--type", "payment")...).failed(t, exitFound, "count as handled", "not confirmed")
	require.Zero(t, s.Len())

	c, r = importing("--from-table", query, "--type", "payment", "-y")
	require.Equal(t, imported{
		Store: "memory", From: "The rows of " + strings.TrimSuffix(query, ";"), Read: 2502, Added: 2501, NoIdentity: 1,
	}, c, "7 of another tenant is another event")
	line := r.audits(t)[0]
	require.Equal(t, "done", line["outcome"])
	require.InDelta(t, 2501, line["added"], 0)
	key := dedup.Key{Scope: "billing", Tenant: "c1", Type: "payment", ID: "7"}
	require.Equal(t, dedup.Done, toldNext(t, s, key))

	c, _ = importing("--from-table", query, "--type", "payment", "-y")
	require.Zero(t, c.Added)
	require.Equal(t, int64(2501), c.Known)

	c, _ = importing("--from-table", "SELECT id AS event_id, 'p' AS type FROM payments -- a comment", "-y")
	require.Equal(t, int64(2501), c.Added)
	var id string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT id::text FROM payments WHERE number = 1").Scan(&id))
	require.Equal(t, dedup.Done, toldNext(t, s, inScope("p", id)))

	c, _ = importing("--from-table", "SELECT repeat('x', 300) AS event_id", "--type", "p", "-y")
	require.Equal(t, int64(1), c.Invalid)
}

// A text that is no query is refused, and so is a query that lacks its columns, or writes.
func TestImportTableRefuses(t *testing.T) {
	url := testenv.Postgres(t)
	conn := connect(t, url)
	execSQL(t, conn, `CREATE TABLE payments (event_id text)`)
	execSQL(t, conn, `INSERT INTO payments VALUES ('1')`)
	_, known := memory()
	for _, c := range []struct {
		query string
		more  string
		code  int
		says  string
	}{
		{"SELEKT 1", "--type p", exitUsage, "syntax error"},
		{"SELECT 1 AS id", "--type p", exitUsage, "AS event_id"},
		{"SELECT event_id FROM payments", "", exitUsage, "--type"},
		{"SELECT event_id, 'x' AS type FROM payments", "--type p", exitUsage, "leave --type away"},
		{"SELECT event_id FROM payments", "--type p,q", exitUsage, "one --type"},
		{"SELECT event_id FROM payments", "--type p --to-committed", exitUsage, "--from-topic"},
		{"SELECT event_id FROM payments", "--type p --id-json x", exitUsage, "--from-topic"},
		{"SELECT event_id FROM payments", "--type p --tx", exitUsage, "Postgres"},
		{"DELETE FROM payments RETURNING event_id", "--type p", exitFailure, "--from-table"},
		{"SELECT event_id FROM payments; DELETE FROM payments", "--type p", exitUsage, "multiple commands"},
		{"SELECT event_id FROM payments) q; DELETE FROM payments; --", "--type p", exitUsage, "syntax error"},
	} {
		args := append([]string{"import", "-G", "billing", "--store", inMemory, "--from-url", url, "-y", "--from-table", c.query}, strings.Fields(c.more)...)
		commandWith(t, known, "", args...).failed(t, c.code, c.says)
	}
	commandWith(t, known, "", "import", "-G", "billing", "--store", inMemory, "--from-table", "SELECT 1", "-y").failed(t, exitUsage, "--from-url")
	var n int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM payments").Scan(&n))
	require.Equal(t, 1, n)
}

// An import that fails half-way reports its progress, and goes on when it is repeated.
func TestImportGoesOn(t *testing.T) {
	url := testenv.Postgres(t)
	s, known := memory()
	known[inMemory].store = &failing{Store: s, Operator: s, after: 2}
	args := []string{"import", "-G", "billing", "--store", inMemory, "--from-url", url, "-y", "--type", "p", "-o", "json",
		"--from-table", "SELECT n AS event_id FROM generate_series(1, 3500) n"}
	r := commandWith(t, known, "", args...)
	r.failed(t, exitFailure, "2000 added", "repeat the command")
	require.Equal(t, "failed", r.audits(t)[0]["outcome"])
	require.InDelta(t, 2000, r.audits(t)[0]["added"], 0)
	known[inMemory].store = s
	var c imported
	commandWith(t, known, "", args...).json(t, &c)
	require.Equal(t, int64(1500), c.Added)
	require.Equal(t, int64(2000), c.Known)
	require.Equal(t, 3500, s.Len())
}

// failing is a store that goes away after some imports.
type failing struct {
	dedup.Store
	dedup.Operator
	after int
}

func (f *failing) Import(ctx context.Context, events []dedup.Imported) (int, error) {
	if f.after--; f.after < 0 {
		return 0, dedup.ErrUnavailable
	}
	if len(events) > importBatch {
		return 0, fmt.Errorf("%d events at once", len(events))
	}
	return f.Operator.Import(ctx, events)
}

// write puts records into a partition: JSON values, a second apart from a time on.
func write(t testing.TB, brokers []string, topic string, partition int32, from time.Time, records ...*sarama.ProducerMessage) {
	t.Helper()
	cfg := testenv.KafkaConfig()
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewSyncProducer(brokers, cfg)
	require.NoError(t, err)
	defer producer.Close()
	for i, r := range records {
		r.Topic, r.Partition, r.Timestamp = topic, partition, from.Add(time.Duration(i)*time.Second)
		_, _, err := producer.SendMessage(r)
		require.NoError(t, err)
	}
}

func record(value string, headers ...string) *sarama.ProducerMessage {
	m := &sarama.ProducerMessage{Value: sarama.StringEncoder(value)}
	for i := 0; i < len(headers); i += 2 {
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(headers[i]), Value: []byte(headers[i+1])})
	}
	return m
}

// commit commits offsets as an old consumer does.
func commit(t testing.TB, brokers []string, group, topic string, offsets ...int64) {
	t.Helper()
	client, err := sarama.NewClient(brokers, testenv.KafkaConfig())
	require.NoError(t, err)
	defer client.Close()
	manager, err := sarama.NewOffsetManagerFromClient(group, client)
	require.NoError(t, err)
	for partition, offset := range offsets {
		pom, err := manager.ManagePartition(topic, int32(partition))
		require.NoError(t, err)
		pom.MarkOffset(offset, "")
		defer pom.Close()
	}
	manager.Commit()
	require.NoError(t, manager.Close())
}

// unlimited keeps records of any age.
var unlimited = map[string]string{"retention.ms": "-1"}

// Records below the committed offsets count as handled, and no others.
func TestImportTopicToCommitted(t *testing.T) {
	brokers := testenv.Kafka(t)
	topic := testenv.CreateTopic(t, brokers, 3, unlimited)
	group := "g-" + topic
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	write(t, brokers, topic, 0, day,
		record(`{"event_id": "a", "type": "order"}`), record(`{"event_id": "b", "type": "order"}`), record(`{"event_id": "c", "type": "order"}`))
	write(t, brokers, topic, 1, day,
		record(`{}`, "ce_id", "d", "ce_source", "/shop", "ce_type", "order"), record(`heartbeat`),
		record(`{"event_id": "e", "type": "invoice"}`, "event-id", "not-e"), record(`{"event_id": "f", "type": "invoice"}`))
	write(t, brokers, topic, 2, day, record(`{"event_id": "g", "type": "order"}`))
	s, known := memory()
	base := []string{"import", "-G", group, "--scope", "billing", "--store", inMemory, "--brokers", strings.Join(brokers, ","), "-o", "json",
		"--from-topic", topic, "--to-committed"}
	commandWith(t, known, "", append(base, "-y")...).failed(t, exitFound, "no committed offsets")

	commit(t, brokers, group, topic, 2, 4)
	var c imported
	r := commandWith(t, known, "", append(base, "--dry-run")...)
	r.json(t, &c)
	require.Equal(t, int64(4), c.Added, "%s: %s", c.From, r.stderr)
	require.Zero(t, s.Len())
	r = commandWith(t, known, "", base...)
	r.failed(t, exitFound, "6 offsets of 3 partitions", "1 partitions without a committed offset", "not confirmed")
	require.Zero(t, s.Len())

	r = commandWith(t, known, "y\n", base...)
	r.ok(t)
	r.json(t, &c)
	require.Equal(t, [5]int64{6, 4, 0, 1, 1}, [5]int64{c.Read, c.Added, c.Known, c.NoIdentity, c.Invalid})
	require.Contains(t, r.stderr, topic+"/1/1", "the record without identity is named")
	require.Contains(t, r.stderr, topic+"/1/2", "the record with two identities is named")
	for _, key := range []dedup.Key{inScope("order", "a"), inScope("order", "b"), inScope("order", "joined:/shop:d"), inScope("invoice", "f")} {
		require.Equal(t, dedup.Done, toldNext(t, s, key), key.ID)
	}
	commandWith(t, known, "", append(base, "-y", "--id-legacy")...).ok(t)
	require.Equal(t, dedup.Done, toldNext(t, s, inScope("order", "/shop:d")), "for handlers with the identity of releases before")
	records, err := s.Inspect(t.Context(), inScope("order", "b"))
	require.NoError(t, err)
	require.Equal(t, dedup.Origin{Topic: topic, Offset: 1, Time: day.Add(time.Second)}, dedup.Origin{
		Topic: records[0].First.Topic, Offset: records[0].First.Offset, Time: records[0].First.Time.UTC(),
	})
	for _, key := range []dedup.Key{inScope("order", "c"), inScope("order", "g"), inScope("invoice", "e")} {
		require.Equal(t, dedup.Fresh, toldNext(t, s, key), key.ID)
	}
	commandWith(t, known, "", append(base, "-y")...).json(t, &c)
	require.Equal(t, int64(4), c.Known, "a repeat")
}

// A range of time, and IDs at the place that the flags name.
func TestImportTopicToTime(t *testing.T) {
	brokers := testenv.Kafka(t)
	topic := testenv.CreateTopic(t, brokers, 1, unlimited)
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	var records []*sarama.ProducerMessage
	for i := range 10 {
		records = append(records, record(fmt.Sprintf(`{"order": {"id": %d}}`, i), "kind", []string{"order", "invoice"}[i%2], "customer", "c1"))
	}
	write(t, brokers, topic, 0, day, records...)
	s, known := memory()
	base := []string{"import", "-G", "billing", "--store", inMemory, "--brokers", strings.Join(brokers, ","), "-o", "json", "-y", "--from-topic", topic}
	importing := func(more ...string) (c imported) {
		r := commandWith(t, known, "", append(base, more...)...)
		r.ok(t)
		r.json(t, &c)
		return c
	}
	c := importing("--to-time", "2026-11-20T00:00:08Z", "--from-time", "2026-11-20T00:00:02Z", "--id-json", "order.id", "--type-header", "kind",
		"--tenant-header", "customer", "--type", "order")
	require.Equal(t, int64(6), c.Read)
	require.Equal(t, int64(3), c.Added)
	require.Equal(t, int64(3), c.OtherTypes)
	for id, want := range map[string]dedup.Verdict{"0": dedup.Fresh, "2": dedup.Done, "6": dedup.Done, "7": dedup.Fresh, "8": dedup.Fresh} {
		require.Equal(t, want, toldNext(t, s, dedup.Key{Scope: "billing", Tenant: "c1", Type: "order", ID: id}), id)
	}
	c = importing("--to-time", "2026-11-21", "--id-json", "order.id", "--type-fixed", "all", "--tenant", "c2")
	require.Equal(t, int64(10), c.Added)
	require.Equal(t, dedup.Done, toldNext(t, s, dedup.Key{Scope: "billing", Tenant: "c2", Type: "all", ID: "9"}))
	c = importing("--to-time", "2026-11-19", "--type-fixed", "all")
	require.Zero(t, c.Read)
	commandWith(t, known, "", append(base, "--to-time", "yesterday")...).failed(t, exitUsage, "--to-time", "2026-01-31")
	commandWith(t, known, "", base...).failed(t, exitUsage, "--to-committed")
	commandWith(t, known, "", append(base[:len(base)-1], topic+".not", "--to-time", "2026-11-21")...).failed(t, exitFailure, topic+".not")
}

// Records of an aborted transaction were never handled, even if later ones were committed.
func TestImportTopicOfTransactions(t *testing.T) {
	brokers := testenv.Kafka(t)
	topic := testenv.CreateTopic(t, brokers, 1)
	cfg := testenv.KafkaConfig()
	cfg.Producer.Idempotent, cfg.Producer.Transaction.ID, cfg.Net.MaxOpenRequests = true, "tx-"+topic, 1
	producer, err := sarama.NewSyncProducer(brokers, cfg)
	require.NoError(t, err)
	defer producer.Close()
	for i, abort := range []bool{false, true, false, true} {
		require.NoError(t, producer.BeginTxn())
		m := record(fmt.Sprintf(`{"event_id": "%d", "type": "order"}`, i))
		m.Topic = topic
		_, _, err := producer.SendMessage(m)
		require.NoError(t, err)
		if abort {
			require.NoError(t, producer.AbortTxn())
		} else {
			require.NoError(t, producer.CommitTxn())
		}
	}
	commit(t, brokers, "g-"+topic, topic, 8)
	s, known := memory()
	var c imported
	r := commandWith(t, known, "", "import", "-G", "g-"+topic, "--scope", "billing", "--store", inMemory, "--brokers", strings.Join(brokers, ","),
		"-o", "json", "-y", "--from-topic", topic, "--to-committed")
	r.ok(t)
	r.json(t, &c)
	require.Equal(t, int64(2), c.Added)
	require.Equal(t, 2, s.Len())
}

// Records behind the begin of an open transaction are not read. The import says so before and after,
// and does not end well: their events would run again. It imports all others.
func TestImportTopicOfAnOpenTransaction_K30(t *testing.T) {
	w := newDeadLetterWorld(t)
	ctx := t.Context()
	producer, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.TransactionalID("tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer producer.Close()
	send := func(partition int32, id string) {
		value := fmt.Appendf(nil, `{"event_id": %q, "type": "order"}`, id)
		require.NoError(t, producer.ProduceSync(ctx, &kgo.Record{Topic: "orders", Partition: partition, Value: value}).FirstErr())
	}
	require.NoError(t, producer.BeginTransaction())
	send(0, "a") // 0, marker 1
	send(1, "d") // 0, marker 1
	require.NoError(t, producer.EndTransaction(ctx, kgo.TryCommit))
	require.NoError(t, producer.BeginTransaction())
	send(0, "b") // 2
	send(0, "c") // 3
	send(1, "e") // 2
	w.commitOffsets("orders", 4, 3)
	s, known := memory()
	args := []string{"import", "-G", w.group, "--scope", "billing", "--store", inMemory, "--brokers", w.brokers[0], "--from-topic", "orders", "--to-committed"}

	const open, open1 = "orders/0: a transaction is open from offset 2", "orders/1: a transaction is open from offset 2"
	commandWith(t, known, "n\n", args...).failed(t, exitFound, open+": offsets 2 to 3 are imported only if it ends before", "not confirmed")
	commandWith(t, known, "", append(args, "--dry-run")...).failed(t, exitFailure, open, open1)
	require.Zero(t, s.Len(), "a dry run wrote")
	r := commandWith(t, known, "", append(args, "-y")...)
	r.failed(t, exitFailure, open+"; the records from 2 to 3 were not imported", "wait for its end, or abort it, and repeat",
		open1+"; the records from 2 to 2 were not imported", "after 2 were read and 2 added")
	require.Contains(t, r.stderr, "orders/0 read up to offset 2\n")
	require.Contains(t, r.stderr, "orders/1 read up to offset 2\n")
	require.Equal(t, "failed", r.audits(t)[0]["outcome"])
	require.Equal(t, 2, s.Len())
	for _, id := range []string{"a", "d"} {
		require.Equal(t, dedup.Done, toldNext(t, s, inScope("order", id)), id)
	}

	require.NoError(t, producer.EndTransaction(ctx, kgo.TryCommit)) // markers 4 and 3
	r = commandWith(t, known, "", append(args, "-y", "-o", "json")...)
	r.ok(t)
	var c imported
	r.json(t, &c)
	require.Equal(t, int64(5), c.Read)
	require.NotContains(t, r.stderr, "transaction")
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		require.Equal(t, dedup.Done, toldNext(t, s, inScope("order", id)), id)
	}
}

// Records that Kafka deletes during the import are named. The others are imported.
func TestImportTopic_DeletedMeanwhile(t *testing.T) {
	w := newDeadLetterWorld(t)
	write(t, w.brokers, "orders", 0, time.Now(), record(`{"event_id": "a", "type": "order"}`), record(`{"event_id": "b", "type": "order"}`))
	admin, err := sarama.NewClusterAdminFromClient(w.client)
	require.NoError(t, err)
	require.NoError(t, admin.DeleteRecords("orders", map[int32]int64{0: 1}))
	var said bytes.Buffer
	_, known := memory()
	im := &importer{a: &app{stderr: &said}, f: &importFlags{retention: time.Hour}, scope: "billing", store: known[inMemory]}
	im.seen = im.a.progress("records read", 2)
	require.NoError(t, im.readTopic(t.Context(), w.client, []kafkalog.Span{{Topic: "orders", End: 2}}))
	require.Equal(t, [2]int64{1, 1}, [2]int64{im.counts.Read, im.counts.Added})
	require.Contains(t, said.String(), "records of orders/0 were deleted: offsets 0 to 0: their events are not imported")
	require.Contains(t, said.String(), "orders/0 read up to offset 2\n")
}

func TestImportTopic_Deleted(t *testing.T) {
	brokers := testenv.Kafka(t)
	topic := testenv.CreateTopic(t, brokers, 2)
	write(t, brokers, topic, 0, time.Now(), record(`{"event_id": "a", "type": "order"}`), record(`{"event_id": "b", "type": "order"}`))
	require.NoError(t, testenv.KafkaAdmin(t, brokers).DeleteRecords(topic, map[int32]int64{0: 1}))
	_, known := memory()
	r := commandWith(t, known, "", "import", "--scope", "billing", "--store", inMemory, "--brokers", strings.Join(brokers, ","),
		"-y", "--from-topic", topic, "--to-time", "2100-01-01")
	r.ok(t)
	require.Contains(t, r.stdout+r.stderr, "in 1 partitions Kafka has deleted older records")
}

// A committed offset beyond the end is one of an earlier topic with this name. The records of the
// new topic were never handled, so none of them counts as handled.
func TestImportTopicMadeAnew_K28(t *testing.T) {
	w := newDeadLetterWorld(t)
	var records []*sarama.ProducerMessage
	for i := range 10 {
		records = append(records, record(fmt.Sprintf(`{"event_id": "%d", "type": "order"}`, i)))
	}
	write(t, w.brokers, "orders", 0, time.Now(), records...)
	w.commit("orders", 50)
	s, known := memory()
	r := commandWith(t, known, "", "import", "-G", "g", "--store", inMemory, "--brokers", w.brokers[0],
		"-y", "--from-topic", "orders", "--to-committed")
	r.failed(t, exitFound, "beyond the end", "offset 50, end 10", "--until")
	require.Zero(t, s.Len())
	line := r.audits(t)[0]
	require.Equal(t, "refused", line["outcome"])
	require.Equal(t, "orders", line["from"])
	require.Zero(t, line["added"])
}
