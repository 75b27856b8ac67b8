package pgstore

import (
	"context"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5/pgtype"
)

// dictionaries have the numbers of the compact layout. In the readable layout both are empty.
type dictionaries struct {
	db      *database
	kinds   dictionary[kindText]
	origins dictionary[originText]
}

// keyArgs returns the columns of keys as arguments, an array for each.
func (d *dictionaries) keyArgs(ctx context.Context, keys *keyRows) ([]any, error) {
	if d.db.layout != compact {
		return []any{keys.tenant, keys.scope, keys.typ, keys.id}, nil
	}
	all, ids := make([]kindText, len(keys.id)), make([]pgtype.UUID, len(keys.id))
	for i := range all {
		all[i], ids[i] = compactKey(&dedup.Key{Tenant: keys.tenant[i], Scope: keys.scope[i],
			Type: keys.typ[i], ID: keys.id[i]})
	}
	numbers := make([]int32, len(all))
	if err := d.kinds.resolve(ctx, d.db, all, numbers); err != nil {
		return nil, err
	}
	return []any{numbers, ids}, nil
}

// keyArg returns the columns of one key as arguments.
func (d *dictionaries) keyArg(ctx context.Context, k *dedup.Key) ([]any, error) {
	if d.db.layout != compact {
		return []any{k.Tenant, k.Scope, k.Type, k.ID}, nil
	}
	a, id := compactKey(k)
	var number [1]int32
	err := d.kinds.resolve(ctx, d.db, []kindText{a}, number[:])
	return []any{number[0], id}, err
}

// lookUpArgs returns the columns of keys like keyArgs, but makes no numbers. A key without a number
// has no record.
func (d *dictionaries) lookUpArgs(ctx context.Context, keys []dedup.Key) ([]any, error) {
	if d.db.layout != compact {
		rows := newKeyRows(len(keys))
		for i := range keys {
			rows.add(&keys[i])
		}
		return d.keyArgs(ctx, &rows)
	}
	all, ids := make([]kindText, len(keys)), make([]pgtype.UUID, len(keys))
	for i := range keys {
		all[i], ids[i] = compactKey(&keys[i])
	}
	numbers, err := d.kinds.find(ctx, d.db, all)
	return []any{numbers, ids}, err
}

func (d *dictionaries) lookUpArg(ctx context.Context, k *dedup.Key) ([]any, error) {
	if d.db.layout != compact {
		return d.keyArg(ctx, k)
	}
	a, id := compactKey(k)
	numbers, err := d.kinds.find(ctx, d.db, []kindText{a})
	if err != nil {
		return nil, err
	}
	return []any{numbers[0], id}, nil
}

func compactKey(k *dedup.Key) (kindText, pgtype.UUID) {
	form, id := compactID(k.ID)
	return kindText{k.Tenant, k.Scope, k.Type, form}, pgtype.UUID{Bytes: id, Valid: true}
}

// placesOf returns the numbers of requests, or nil in the readable layout. placesOf needs at
// most two separate transactions. Call placesOf before a transaction takes a connection, which
// may be the last one of the pool.
func (d *dictionaries) placesOf(ctx context.Context, reqs []dedup.Request) ([]place, error) {
	if d.db.layout != compact {
		return nil, nil
	}
	all, origins, places := make([]kindText, len(reqs)), make([]originText, len(reqs)),
		make([]place, len(reqs))
	for i := range reqs {
		all[i], places[i].id = compactKey(&reqs[i].Key)
		origins[i] = originText{storable(reqs[i].Origin.Topic), reqs[i].Origin.Partition}
	}
	numbers := make([]int32, len(reqs))
	if err := d.kinds.resolve(ctx, d.db, all, numbers); err != nil {
		return nil, err
	}
	for i, n := range numbers {
		places[i].kind = n
	}
	if err := d.origins.resolve(ctx, d.db, origins, numbers); err != nil {
		return nil, err
	}
	for i, n := range numbers {
		places[i].origin = n
	}
	return places, nil
}

// placesKnown is like placesOf, but makes no number. A key without a number has no row. The kind
// is then 0, which no row has.
func (d *dictionaries) placesKnown(ctx context.Context, reqs []dedup.Request) ([]place, error) {
	if d.db.layout != compact {
		return nil, nil
	}
	all, places := make([]kindText, len(reqs)), make([]place, len(reqs))
	for i := range reqs {
		all[i], places[i].id = compactKey(&reqs[i].Key)
	}
	numbers, err := d.kinds.find(ctx, d.db, all)
	for i, n := range numbers {
		places[i].kind = n
	}
	return places, err
}

// numberOrigins makes numbers for the partitions of dead letters, in a separate transaction.
func (d *dictionaries) numberOrigins(ctx context.Context, topics []string,
	partitions []int32) error {
	if d.db.layout != compact || len(topics) == 0 {
		return nil
	}
	all := make([]originText, len(topics))
	for i := range all {
		all[i] = originText{topics[i], partitions[i]}
	}
	return d.origins.resolve(ctx, d.db, all, make([]int32, len(all)))
}
