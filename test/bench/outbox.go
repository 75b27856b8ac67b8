package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// The rows about the outbox share a table of waiting events and a topic that is empty at first.

const (
	emitted      = "order.paid" // the type of the events
	payloadBytes = 250
	fillBatch    = 5000 // events a transaction, when a backlog is written
)

// aggregateOf returns the aggregate of event seq. A backlog of few aggregates has many events of
// each in sequence.
func (r *row) aggregateOf(seq int) string {
	rng := rand.New(rand.NewPCG(r.spec.seed, uint64(seq)))
	return "order-" + strconv.Itoa(rng.IntN(r.aggregates))
}

const payloadBegins = `{"seq":`

// payloadOf is the value of event seq.
func payloadOf(seq int) []byte {
	b := fmt.Appendf(
		make([]byte, 0, payloadBytes),
		`%s%d,"status":"paid","note":"`,
		payloadBegins,
		seq,
	)
	for len(b) < payloadBytes-2 {
		b = append(b, 'x')
	}
	return append(b, `"}`...)
}

// seqOf is the inverse.
func seqOf(payload []byte) (int, error) {
	s, ok := strings.CutPrefix(string(payload), payloadBegins)
	number, _, found := strings.Cut(s, ",")
	if !ok || !found || len(payload) != payloadBytes {
		return 0, fmt.Errorf("a record of %d bytes is none of ours", len(payload))
	}
	return strconv.Atoi(number)
}

// entry is event seq, as a service would add it.
func (x *run) entry(seq int) outbox.Entry {
	return outbox.Entry{
		Topic:   x.topic.name,
		Key:     x.row.aggregateOf(seq),
		Type:    emitted,
		Payload: payloadOf(seq),
	}
}

// emptyTopic makes a topic for one run.
func (l *lab) emptyTopic(s spec) (*topic, error) {
	t := &topic{spec: s, name: fmt.Sprintf("%s-out-%d", l.id, len(l.created)), unique: s.deliveries}
	return t, l.createTopic(t.name, s.partitions)
}

// dropTopic deletes the records that one run has published.
func (l *lab) dropTopic(t *topic) {
	if err := l.admin.DeleteTopic(t.name); err != nil {
		logf("%s: %v", t.name, err)
	}
}

// fillOutbox writes the backlog with the product's own function.
func fillOutbox(ctx context.Context, x *run) error {
	box := pgoutbox.New(x.pool)
	return x.inParts(ctx, "idem_outbox", func(tx pgx.Tx, from, to int) error {
		entries := make([]outbox.Entry, 0, to-from)
		for seq := from; seq < to; seq++ {
			entries = append(entries, x.entry(seq))
		}
		return box.Add(ctx, tx, entries...)
	})
}

// fillNaive writes it to the table that people write by hand.
func fillNaive(ctx context.Context, x *run) error {
	return x.inParts(ctx, "naive_outbox", func(tx pgx.Tx, from, to int) error {
		keys, payloads := make([]string, 0, to-from), make([][]byte, 0, to-from)
		for seq := from; seq < to; seq++ {
			keys, payloads = append(keys, x.row.aggregateOf(seq)), append(payloads, payloadOf(seq))
		}
		_, err := tx.Exec(ctx, `INSERT INTO naive_outbox (topic, aggregate, event_type, payload)
			SELECT $1, k, $2, p FROM unnest($3::text[], $4::bytea[]) AS r(k, p)`, x.topic.name, emitted, keys, payloads)
		return err
	})
}

// inParts writes all events of the row, each part in a transaction.
func (x *run) inParts(
	ctx context.Context,
	table string,
	write func(tx pgx.Tx, from, to int) error,
) error {
	for from := 0; from < x.topic.unique; from += fillBatch {
		err := pgx.BeginFunc(
			ctx,
			x.pool,
			func(tx pgx.Tx) error { return write(tx, from, min(from+fillBatch, x.topic.unique)) },
		)
		if err != nil {
			return fmt.Errorf("backlog: %w", err)
		}
	}
	_, err := x.pool.Exec(ctx, "VACUUM ANALYZE "+table)
	return err
}

// verifyTopic reads the topic. Every event must be there once, the events of an aggregate in the
// order of their inserts, and the table must be empty.
func (x *run) verifyTopic(ctx context.Context) error {
	client, err := x.reader()
	if err != nil {
		return err
	}
	defer client.Close()
	got := published{
		seen: make([]bool, x.topic.unique),
		last: make(map[string]int),
		ends: make(map[int32]int64),
	}
	for got.n < x.topic.unique {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf(
				"WRONG: %d events, %d records in the topic: %w",
				x.topic.unique,
				got.n,
				err,
			)
		}
		fetches.EachPartition(
			func(p kgo.FetchTopicPartition) { err = errors.Join(err, got.add(p)) },
		)
		if err != nil {
			return err
		}
	}
	if end := got.end(); end != int64(x.topic.unique) {
		return fmt.Errorf("WRONG: %d events, %d records in the topic", x.topic.unique, end)
	}
	return x.nothingWaits(ctx)
}

// published has the events that were read from a topic so far.
type published struct {
	n    int
	seen []bool          // by event
	last map[string]int  // event by aggregate
	ends map[int32]int64 // of the partitions
}

func (p *published) add(part kgo.FetchTopicPartition) error {
	p.ends[part.Partition] = part.HighWatermark
	for _, r := range part.Records {
		seq, err := seqOf(r.Value)
		if err != nil || seq < 0 || seq >= len(p.seen) {
			return fmt.Errorf("WRONG: a record that nobody added: %w", err)
		}
		key := string(r.Key)
		if before, any := p.last[key]; p.seen[seq] || any && before > seq {
			return fmt.Errorf("WRONG: event %d of %s came twice or out of its order", seq, key)
		}
		p.seen[seq], p.last[key] = true, seq
		p.n++
	}
	return nil
}

func (p *published) end() (sum int64) {
	for _, end := range p.ends {
		sum += end
	}
	return sum
}

func (x *run) nothingWaits(ctx context.Context) error {
	var ours, naive int
	err := x.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM idem_outbox WHERE state = 0), (SELECT count(*) FROM naive_outbox WHERE NOT sent)`).
		Scan(&ours, &naive)
	if err == nil && ours+naive > 0 {
		err = fmt.Errorf("WRONG: %d rows still wait", ours+naive)
	}
	return err
}

// allWait counts the events that were added and not published.
func (x *run) allWait(ctx context.Context) error {
	var n int
	err := x.pool.QueryRow(ctx, "SELECT count(*) FROM idem_outbox WHERE state = 0").Scan(&n)
	if err == nil && n != x.topic.unique {
		err = fmt.Errorf("WRONG: %d transactions, %d events in the outbox", x.topic.unique, n)
	}
	return err
}

// reader reads the topic from its beginning, without a group.
func (x *run) reader() (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(x.brokers...),
		kgo.ConsumeTopics(x.topic.name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
}

// newPool opens a pool. Its connections belong to the run's sessions at the server if name is the
// run's.
func (l *lab) newPool(ctx context.Context, name string, size int32) (*pgxpool.Pool, error) {
	cfg := l.pool.Config()
	cfg.ConnConfig.RuntimeParams["application_name"] = name
	cfg.MaxConns, cfg.MinConns = size, size
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, errors.Join(errors.New("connections of their own"), err)
	}
	return pool, nil
}
