package outboxtest

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox"
)

// lateCommit: a row that drew its number first and commits last is fetched (O-01). A reader that
// goes on from the last number it saw would lose the row.
func (k *kit[Tx]) lateCommit() {
	held := k.hold("a")
	late := k.begin()
	require.NoError(k, k.Add(k.ctx, late, entry("A", "late")))
	k.commit(entry("B", "early"))
	rows := k.fetchAll()
	require.Equal(k, []string{"early"}, ids(rows))
	k.settle("a", held, outbox.Settlement{Sent: rowIDs(rows)})
	require.NoError(k, k.Commit(k.ctx, late))
	require.Equal(k, []string{"late"}, ids(k.fetchAll()))
}

// aggregates is how many topics and keys the writers compete for.
const aggregates = 4

// numbersFollowCommits: within each aggregate, no row appears in front of a row that a reader has
// seen (rule 22). So numbers ascend in the order of commits.
func (k *kit[Tx]) numbersFollowCommits() {
	const writers, rounds = 10, 30
	k.logSeed()
	written := make(chan error, 1)
	go func() {
		written <- together(writers, func(w int) error {
			r := k.random(w)
			for i := range rounds {
				if err := k.writeSlowly(r, fmt.Sprintf("%d.%d", w, i)); err != nil {
					return fmt.Errorf("writer %d, round %d: %w", w, i, err)
				}
			}
			return nil
		})
	}()
	seen, last := map[int64]bool{}, map[string]int64{}
	polls := 0
	look := func() {
		polls++
		newest := map[string]int64{}
		for _, row := range k.fetchAll() {
			if seen[row.Seq] {
				continue
			}
			seen[row.Seq] = true
			require.Greater(k, row.Seq, last[row.Entry.Key],
				"aggregate %s: row %d appears after a later row", row.Entry.Key, row.Seq)
			newest[row.Entry.Key] = row.Seq
		}
		for key, seq := range newest {
			last[key] = seq
		}
	}
	for {
		select {
		case err := <-written:
			require.NoError(k, err)
			look()
			require.GreaterOrEqual(k, len(seen), writers*rounds)
			require.Greater(k, polls, 10, "too few to see anything")
			return
		default:
			look()
		}
	}
}

// writeSlowly adds with one call, and stays in the transaction before and afterwards.
func (k *kit[Tx]) writeSlowly(r *rand.Rand, name string) error {
	tx, err := k.Begin(k.ctx)
	if err != nil {
		return err
	}
	pause(k.ctx, r)
	var entries []outbox.Entry
	for i, key := range r.Perm(aggregates)[:1+r.IntN(aggregates)] {
		entries = append(entries, entry(fmt.Sprint(key), fmt.Sprintf("%s.%d", name, i)))
	}
	if err := k.Add(k.ctx, tx, entries...); err != nil {
		return errors.Join(err, k.Rollback(k.ctx, tx))
	}
	pause(k.ctx, r)
	return k.Commit(k.ctx, tx)
}
