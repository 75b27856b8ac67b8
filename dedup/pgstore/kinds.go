package pgstore

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// kindText is the text behind a number in idem_kinds.
type kindText struct {
	tenant, scope, typ string
	form               idForm
}

func (k kindText) compare(o kindText) int {
	return cmp.Or(strings.Compare(k.tenant, o.tenant), strings.Compare(k.scope, o.scope),
		strings.Compare(k.typ, o.typ), cmp.Compare(k.form, o.form))
}

func (kindText) texts(q *statements) (add, read string) { return q.newKinds, q.kinds }

func (kindText) args(all []kindText) []any {
	keys, forms := newKeyRows(len(all)), make([]int16, len(all))
	for i, k := range all {
		keys.tenant, keys.scope, keys.typ = append(keys.tenant, k.tenant),
			append(keys.scope, k.scope), append(keys.typ, k.typ)
		forms[i] = int16(k.form)
	}
	return []any{keys.tenant, keys.scope, keys.typ, forms}
}

// originText is the text behind a number in idem_origins.
type originText struct {
	topic     string
	partition int32
}

func (o originText) compare(p originText) int {
	return cmp.Or(strings.Compare(o.topic, p.topic), cmp.Compare(o.partition, p.partition))
}

func (originText) texts(q *statements) (add, read string) { return q.newOrigins, q.origins }

func (originText) args(all []originText) []any {
	topics, partitions := make([]string, len(all)), make([]int32, len(all))
	for i, o := range all {
		topics[i], partitions[i] = o.topic, o.partition
	}
	return []any{topics, partitions}
}

// numbered is a type of text that a dictionary numbers.
type numbered[T any] interface {
	comparable
	compare(T) int
	texts(*statements) (add, read string)
	args([]T) []any
}

// dictionary remembers committed numbers. A number that was rolled back would lead this process to
// rows that no other process finds (rule 28). So the transaction that makes a number writes no
// other row, and ends before the number is used.
type dictionary[T numbered[T]] struct {
	mu     sync.RWMutex
	number map[T]int32
}

// maxNumbers bounds the memory. A full dictionary forgets all numbers and looks the next ones up
// again.
const maxNumbers = 1 << 16

// resolve writes the number of each text into numbers. Missing numbers are made, in one transaction
// at most. If all are known, there is no transaction.
func (c *dictionary[T]) resolve(ctx context.Context, db *database, all []T, numbers []int32) error {
	missing := c.known(all, numbers)
	if len(missing) == 0 {
		return nil
	}
	found, err := makeNumbers(ctx, db, missing)
	if err != nil {
		return err
	}
	c.remember(missing, found)
	for i, k := range all {
		if numbers[i] == 0 {
			at, _ := slices.BinarySearchFunc(missing, k, T.compare)
			numbers[i] = found[at]
		}
	}
	return nil
}

// remember keeps the numbers that are not zero.
func (c *dictionary[T]) remember(all []T, numbers []int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.number == nil || len(c.number)+len(all) > maxNumbers {
		c.number = make(map[T]int32, len(all))
	}
	for i, k := range all {
		if numbers[i] != 0 {
			c.number[k] = numbers[i]
		}
	}
}

// known writes the remembered numbers and returns the other texts, sorted and without duplicates.
func (c *dictionary[T]) known(all []T, numbers []int32) (missing []T) {
	c.mu.RLock()
	for i, k := range all {
		if i > 0 && k == all[i-1] && numbers[i-1] != 0 {
			numbers[i] = numbers[i-1]
		} else if numbers[i] = c.number[k]; numbers[i] == 0 {
			missing = append(missing, k)
		}
	}
	c.mu.RUnlock()
	slices.SortFunc(missing, T.compare)
	return slices.Compact(missing)
}

const waitForDisk = "SET LOCAL synchronous_commit = on"

func makeNumbers[T numbered[T]](ctx context.Context, db *database,
	all []T) (found []int32, err error) {
	err = db.ownTx(ctx, "dictionary", func(q *statements, b *pgx.Batch) {
		found = make([]int32, len(all))
		add, read := all[0].texts(q)
		args := all[0].args(all)
		// otherwise a crash of the server could give the number to another text
		b.Queue(waitForDisk)
		b.Queue(add, args...)
		b.Queue(read, args...) // a statement of its own sees numbers committed by other processes
	}, func(results pgx.BatchResults) error {
		if err := execs(2)(results); err != nil {
			return err
		}
		err := readNumbers(results, found)
		if err == nil && slices.Contains(found, 0) {
			err = errNoAnswer
		}
		return err
	})
	return found, err
}

// find returns existing numbers, and 0 for a text without a number. find makes no number.
func (c *dictionary[T]) find(ctx context.Context, db *database, all []T) ([]int32, error) {
	numbers := make([]int32, len(all))
	missing := c.known(all, numbers)
	if len(missing) == 0 {
		return numbers, nil
	}
	var found []int32
	err := db.ownTx(ctx, "dictionary", func(q *statements, b *pgx.Batch) {
		found = make([]int32, len(missing))
		_, read := missing[0].texts(q)
		b.Queue(read, missing[0].args(missing)...)
	}, func(results pgx.BatchResults) error { return readNumbers(results, found) })
	if err != nil {
		return nil, err
	}
	c.remember(missing, found)
	for i, k := range all {
		if numbers[i] == 0 {
			at, _ := slices.BinarySearchFunc(missing, k, T.compare)
			numbers[i] = found[at]
		}
	}
	return numbers, nil
}

func readNumbers(results pgx.BatchResults, found []int32) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	return scanNumbers(rows, found)
}

func scanNumbers(rows pgx.Rows, found []int32) error {
	var n int64
	var number int32
	_, err := pgx.ForEachRow(rows, []any{&n, &number}, func() error {
		if n < 1 || n > int64(len(found)) {
			return errUnknown
		}
		found[n-1] = number
		return nil
	})
	return err
}
