package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

var _ dedup.ProgressRecorder = (*Store)(nil)

// headway is subtracted from the present: the broker may have records that no consumer has seen
// yet.
const headway = time.Minute

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// consumed is the progress on record of one partition.
type consumed struct {
	next  int64
	until time.Time // zero: not known
}

// RecordProgress implements [dedup.ProgressRecorder] in table idem_progress, in one transaction for
// all partitions:
//
//   - A partition without a lag has consumed up to one minute ago, by the database's clock. No
//     later time is stored, even if a producer's clock is ahead.
//   - A partition without a time keeps the time on record.
//   - If a partition went back, or is new, its time is unknown. Then [Reaper] deletes no row of
//     the scope.
//
// If a scope no longer consumes a topic, call [Store.ForgetProgress].
func (s *Store) RecordProgress(ctx context.Context, scope string, progress []dedup.Progress) error {
	last := lastWords(progress)
	if len(last) == 0 {
		return nil
	}
	return s.ownTx(ctx, "record progress", nil, func(ctx context.Context, w *work) error {
		for some := range slices.Chunk(last, rowsPerStatement) {
			if err := w.recordProgress(ctx, scope, some); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *work) recordProgress(ctx context.Context, scope string, progress []dedup.Progress) error {
	known, err := w.lockProgress(ctx, scope, progress)
	if err == nil {
		err = w.readClock(ctx)
	}
	if err != nil {
		return err
	}
	var added, changed [][]any
	for i := range progress {
		p := &progress[i]
		old, there := known[place{p.Topic, p.Partition}]
		now := advance(old, p, w.now.Add(-headway))
		var until any
		if !now.until.IsZero() {
			until = w.d.Time(now.until)
		}
		row := []any{scope, p.Topic, int64(p.Partition), now.next, until, w.d.Time(w.now)}
		if there {
			changed = append(changed, row)
		} else {
			added = append(added, row)
		}
	}
	to := progressTable(w.d)
	if err := to.replace(ctx, w.q, w.d, changed); err != nil {
		return err
	}
	return to.add(ctx, w.q, w.d, added)
}

func progressTable(d *Dialect) relation {
	return relation{"idem_progress", []string{"scope", "topic", d.name("partition"), "next_offset",
		"consumed_until", "updated_at"}, 3}
}

// advance returns the record of a partition after p. present is the latest time that may be
// recorded.
func advance(old consumed, p *dedup.Progress, present time.Time) consumed {
	now := consumed{next: p.Next}
	switch {
	case p.CaughtUp:
		now.until = present
	case !p.Time.IsZero():
		now.until = p.Time
		if p.Time.After(present) {
			now.until = present
		}
	case p.Next >= old.next:
		now.until = old.until
	}
	return now
}

// lastWords returns progress in order, with each partition once: the last entry counts. A time
// outside the calendar comes from a broken producer and counts as unknown.
func lastWords(progress []dedup.Progress) (last []dedup.Progress) {
	all := slices.Clone(progress)
	order := func(a, b dedup.Progress) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	}
	for i := range all {
		all[i].Topic = decision.Storable(all[i].Topic)
		if y := all[i].Time.Year(); y < 1000 || y > 9999 {
			all[i].Time = time.Time{}
		}
	}
	slices.SortStableFunc(all, order)
	for i, p := range all {
		if i+1 == len(all) || order(p, all[i+1]) != 0 {
			last = append(last, p)
		}
	}
	return last
}

// lockProgress reads and locks the records of these partitions, which ascend.
func (w *work) lockProgress(ctx context.Context, scope string, progress []dedup.Progress) (
	map[place]consumed, error) {
	partition := w.d.name("partition")
	a := &arguments{d: w.d}
	text := "SELECT topic, " + partition + ", next_offset, " + w.d.Micros("consumed_until") +
		" FROM idem_progress WHERE scope = " + a.add(scope) + " AND ("
	var parts []string
	for i := 0; i < len(progress); {
		topic, first := progress[i].Topic, i
		part := "(topic = " + a.add(topic) + " AND " + partition + " IN "
		var numbers []int64
		for ; i < len(progress) && progress[i].Topic == topic; i++ {
			numbers = append(numbers, int64(progress[first+len(numbers)].Partition))
		}
		parts = append(parts, part+in(a, numbers)+")")
	}
	text += strings.Join(parts, " OR ") + ") ORDER BY topic, " + partition + w.d.Lock
	known := make(map[place]consumed)
	err := each(ctx, w.q, text, a.list, func(rows *sql.Rows) error {
		var p place
		var c consumed
		var until sql.NullInt64
		if err := rows.Scan(&p.topic, &p.partition, &c.next, &until); err != nil {
			return err
		}
		if until.Valid {
			c.until = micros(until.Int64)
		}
		known[p] = c
		return nil
	})
	return known, err
}

// Progress implements [dedup.ProgressRecorder].
func (s *Store) Progress(ctx context.Context, scope string,
	topics ...string) (known []dedup.Progress, err error) {
	err = s.reading(ctx, "read progress", nil, func(ctx context.Context, w *work) error {
		for some := range slices.Chunk(distinct(topics), rowsPerStatement) {
			a := &arguments{d: w.d}
			text := "SELECT topic, " + w.d.name("partition") + ", next_offset FROM idem_progress " +
				"WHERE scope = " + a.add(scope) + " AND topic IN " + in(a, some) +
				" ORDER BY topic, " + w.d.name("partition")
			err := each(ctx, w.q, text, a.list, func(rows *sql.Rows) error {
				var p dedup.Progress
				err := rows.Scan(&p.Topic, &p.Partition, &p.Next)
				known = append(known, p)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return known, nil
}

// distinct returns texts in order, each once.
func distinct(texts []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(texts)))
}

// ForgetProgress removes a topic that the scope will not consume again. Without this call the
// topic's time stands still, and no row of the scope is deleted any more. Afterwards the store
// no longer waits for copies in that topic. A consumer that still reads the topic records the
// topic again.
func (s *Store) ForgetProgress(ctx context.Context, scope, topic string) error {
	return s.ownTx(ctx, "forget progress", nil, func(ctx context.Context, w *work) error {
		a := &arguments{d: w.d}
		text := "DELETE FROM idem_progress WHERE scope = " + a.add(scope) +
			" AND topic = " + a.add(topic)
		_, err := w.q.ExecContext(ctx, text, a.list...)
		return err
	})
}
