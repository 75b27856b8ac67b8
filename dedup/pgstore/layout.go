package pgstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// layout is how the rows of a store are written. Its texts are on record in idem_schema.
type layout string

const (
	readable layout = "readable" // the key's parts as text
	compact  layout = "compact"  // numbers and 16 bytes (rule 28)
)

// Compact chooses the compact layout: a number in place of tenant, scope and type, and 16 bytes in place of the ID, in
// tables processed_events_compact and idempotency_keys_compact. An event that is done takes about 125 bytes there with
// its indexes, in place of 320. The views processed_events_read and idempotency_keys_read show it as the readable
// layout does.
//
// An ID that is a UUID in lower case with hyphens, or a ULID in upper case, is kept as it is, in its own order. Of any
// other there is a hash only (SHA-256, cut to 128 bits), which cannot be turned back into the ID; one can still ask for
// an event whose ID one has. No ID is ever folded or trimmed: another spelling is another event (P-23).
//
// The layout is chosen once, with the first [Migrate], and cannot be changed later. Give this option to [New], [Open],
// [Migrate] and [Schema], or to none: [Store.Check], [Migrate] and every first call fail if the tables have the other
// layout. Default: the readable layout.
func Compact() Option { return func(s *Store) { s.layout = compact } }

// layoutError says that the tables have another layout than the option says.
func (s *Store) layoutError(found string) error {
	fix := "give pgstore.Compact to New, Open and Migrate"
	if layout(found) == readable {
		fix = "leave pgstore.Compact away"
	}
	return fmt.Errorf("%w: the tables have the %s layout, the store was made for the %s one: %s, or use another schema; "+
		"a layout cannot be changed", errLayout, found, s.layout, fix)
}

// checkLayout compares the layout on record with that of the store.
func (s *Store) checkLayout(ctx context.Context, q *statements, row func(context.Context, string, ...any) pgx.Row) error {
	var found string
	if err := row(ctx, q.layout).Scan(&found); err != nil {
		return err
	}
	if layout(found) != s.layout {
		return s.layoutError(found)
	}
	return nil
}

// file returns the text of sql/name.sql, or what the compact layout has in its place.
func (l layout) file(name string) string {
	if l == compact {
		if text, err := sqlFiles.ReadFile("sql/compact/" + name + ".sql"); err == nil {
			return string(text)
		}
	}
	text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil { // a file that is not embedded: a mistake of the build, seen by every test
		return "missing " + name
	}
	return string(text)
}

// pairs are what stands in the texts for what the layouts name differently.
func (l layout) pairs(schema string) []string {
	key, types := []string{"tenant", "scope", "event_type", "event_id"}, []string{"text", "text", "text", "text"}
	tables := [4]string{"processed_events", "processed_events", "idempotency_keys", "idempotency_keys"}
	collated := []string{"processed_events", "idempotency_keys", "event_starts", "deferred_queues", "deferred"}
	ofScope, status, fence, shown := "scope = $1::text", "k.status", "k.fence", "k.event_id"
	waitAgain := "status = 'moved', updated_at = clock_timestamp()"
	if l == compact {
		key, types = []string{"kind", "id"}, []string{"integer", "uuid"}
		tables = [4]string{"processed_events_compact", "processed_events_read",
			"idempotency_keys_compact", "idempotency_keys_read"}
		collated = []string{"idem_kinds", "idem_origins", "event_starts", "deferred_queues", "deferred"}
		ofScope = "kind = ANY (ARRAY(SELECT i.kind FROM " + schema + ".idem_kinds i WHERE i.scope = $1::text))"
		status, fence = "coalesce(k.rest ->> 'status', 'done')", "(k.rest ->> 'fence')::bigint"
		shown = "coalesce(k.event_id, 'sha256:' || replace(k.id::text, '-', ''))" // no ID that is shown as it is looks like it
		waitAgain = "rest = coalesce(k.rest, '{}') || jsonb_build_object('status', 'moved', 'updated_at', clock_timestamp())"
	}
	for i := range collated {
		collated[i] = "'" + schema + "." + collated[i] + "'::regclass"
	}
	pairs := []string{"{schema}", schema, "{tables}", strings.Join(collated, ", "),
		"{key}", strings.Join(key, ", "), "{id}", key[len(key)-1],
		"{events}", tables[0], "{events_read}", tables[1], "{keys}", tables[2], "{keys_read}", tables[3],
		"{of_scope}", ofScope, "{k.status}", status, "{k.fence}", fence, "{wait_again}", waitAgain, "{shown_id}", shown}
	for _, alias := range []string{"k", "r", "s", "l", "h"} {
		pairs = append(pairs, "{"+alias+".key}", alias+"."+strings.Join(key, ", "+alias+"."))
	}
	for first := 1; first <= 8; first++ { // the number of the key's first argument
		var arrays, one []string
		for i, t := range types {
			one = append(one, fmt.Sprintf("$%d::%s", first+i, t))
			arrays = append(arrays, one[i]+"[]")
		}
		pairs = append(pairs, fmt.Sprintf("{one@%d}", first), strings.Join(one, ", "),
			fmt.Sprintf("{arrays@%d}", first), strings.Join(arrays, ", "))
	}
	return pairs
}

// keyArgs returns the columns of keys as arguments, an array for each.
func (s *Store) keyArgs(ctx context.Context, keys *keyRows) ([]any, error) {
	if s.layout != compact {
		return []any{keys.tenant, keys.scope, keys.typ, keys.id}, nil
	}
	all, ids := make([]kind, len(keys.id)), make([]pgtype.UUID, len(keys.id))
	for i := range all {
		all[i], ids[i] = compactKey(&dedup.Key{Tenant: keys.tenant[i], Scope: keys.scope[i], Type: keys.typ[i],
			ID: keys.id[i]})
	}
	numbers := make([]int32, len(all))
	if err := s.kinds.resolve(ctx, s, all, numbers); err != nil {
		return nil, err
	}
	return []any{numbers, ids}, nil
}

// keyArg returns the columns of one key as arguments.
func (s *Store) keyArg(ctx context.Context, k *dedup.Key) ([]any, error) {
	if s.layout != compact {
		return []any{k.Tenant, k.Scope, k.Type, k.ID}, nil
	}
	a, id := compactKey(k)
	var number [1]int32
	err := s.kinds.resolve(ctx, s, []kind{a}, number[:])
	return []any{number[0], id}, err
}

func compactKey(k *dedup.Key) (kind, pgtype.UUID) {
	form, id := compactID(k.ID)
	return kind{k.Tenant, k.Scope, k.Type, form}, pgtype.UUID{Bytes: id, Valid: true}
}

// place is what a request's row has for its key and its origin in the compact layout.
type place struct {
	kind, origin int32
	id           pgtype.UUID
}

// places returns the numbers of requests, with at most two transactions of their own; nil in the readable layout. It is
// called before a transaction takes a connection, which may be the only one.
func (s *Store) places(ctx context.Context, reqs []dedup.Request) ([]place, error) {
	if s.layout != compact {
		return nil, nil
	}
	all, origins, places := make([]kind, len(reqs)), make([]origin, len(reqs)), make([]place, len(reqs))
	for i := range reqs {
		all[i], places[i].id = compactKey(&reqs[i].Key)
		origins[i] = origin{storable(reqs[i].Origin.Topic), reqs[i].Origin.Partition}
	}
	numbers := make([]int32, len(reqs))
	if err := s.kinds.resolve(ctx, s, all, numbers); err != nil {
		return nil, err
	}
	for i, n := range numbers {
		places[i].kind = n
	}
	if err := s.origins.resolve(ctx, s, origins, numbers); err != nil {
		return nil, err
	}
	for i, n := range numbers {
		places[i].origin = n
	}
	return places, nil
}

// placesKnown is as places, and makes no number: what has none has no row, and is said to be of kind 0, of which there is none.
func (s *Store) placesKnown(ctx context.Context, reqs []dedup.Request) ([]place, error) {
	if s.layout != compact {
		return nil, nil
	}
	all, places := make([]kind, len(reqs)), make([]place, len(reqs))
	for i := range reqs {
		all[i], places[i].id = compactKey(&reqs[i].Key)
	}
	numbers, err := s.kinds.find(ctx, s, all)
	for i, n := range numbers {
		places[i].kind = n
	}
	return places, err
}

// at returns the places of some requests; nil: of all.
func at(all []place, some []int) []place {
	if all == nil || some == nil {
		return all
	}
	places := make([]place, len(some))
	for i, n := range some {
		places[i] = all[n]
	}
	return places
}

// heldKeys are the keys of some requests of a transaction. They ask for no number: that could take a second connection.
type heldKeys struct {
	r     *txRun
	texts keyRows
	kinds []int32
	ids   []pgtype.UUID
}

func newHeldKeys(r *txRun, n int) *heldKeys { return &heldKeys{r: r, texts: newKeyRows(n)} }

func (h *heldKeys) add(i int) {
	if h.r.numbers == nil {
		h.texts.add(&h.r.reqs[i].Key)
		return
	}
	h.kinds, h.ids = append(h.kinds, h.r.numbers[i].kind), append(h.ids, h.r.numbers[i].id)
}

func (h *heldKeys) args() []any {
	if h.r.numbers == nil {
		return []any{h.texts.tenant, h.texts.scope, h.texts.typ, h.texts.id}
	}
	return []any{h.kinds, h.ids}
}
