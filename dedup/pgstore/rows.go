package pgstore

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5/pgtype"
)

// Requests travel as arrays, one for each column. So one text serves any number of keys.

// keyRows are the columns of keys.
type keyRows struct{ tenant, scope, typ, id []string }

func newKeyRows(n int) keyRows {
	all := make([]string, 4*n)
	return keyRows{all[:0:n], all[n : n : 2*n], all[2*n : 2*n : 3*n], all[3*n : 3*n : 4*n]}
}

func (r *keyRows) add(k *dedup.Key) {
	r.tenant, r.scope = append(r.tenant, k.Tenant), append(r.scope, k.Scope)
	r.typ, r.id = append(r.typ, k.Type), append(r.id, k.ID)
}

// requestRows are the columns of a claim. Values that all requests share travel once: parsing
// arrays is a fifth of the cost of a large claim.
type requestRows struct {
	reqs   []dedup.Request
	form   form
	places []place             // in the compact layout
	byID   map[pgtype.UUID]int // made when first needed
	place  []any               // arguments of insert_*.sql from $1 on: 13, in the compact layout 11
}

// place holds the numbers of a request's key and origin, in the compact layout.
type place struct {
	kind, origin int32
	id           pgtype.UUID
}

// placesAt returns the places with the given indices; nil: all.
func placesAt(all []place, some []int) []place {
	if all == nil || some == nil {
		return all
	}
	places := make([]place, len(some))
	for i, n := range some {
		places[i] = all[n]
	}
	return places
}

// newRequestRows returns the columns of requests. places is nil in the readable layout.
func newRequestRows(reqs []dedup.Request, places []place) *requestRows {
	r := &requestRows{reqs: reqs, places: places, form: alike}
	for i := 1; i < len(reqs) && r.form == alike; i++ {
		if !shareColumns(&reqs[0], &reqs[i]) || len(places) > 0 &&
			places[0].kind != places[i].kind {
			r.form = mixed
		}
	}
	if r.form == alike {
		q := &reqs[0]
		r.place = append(make([]any, 0, 15), q.Key.Tenant, q.Key.Scope, q.Key.Type, nil,
			fingerprints(reqs, places != nil), int64(q.Position.Generation),
			int64(q.Position.Retry), microseconds(q.Retention), q.AnyAge)
	} else {
		r.place = mixedArgs(reqs, places != nil)
	}
	n := len(reqs)
	offset, at := make(column[pgtype.Int8], n), make(column[pgtype.Timestamptz], n)
	for i := range reqs {
		o := &reqs[i].Origin
		offset[i], at[i] = pgtype.Int8{Int64: o.Offset, Valid: true}, timeOf(o)
	}
	if places != nil {
		r.compact(at, offset)
		return r
	}
	id, partition := make(column[pgtype.Text], n), make(column[pgtype.Int4], n)
	for i := range reqs {
		id[i] = pgtype.Text{String: reqs[i].Key.ID, Valid: true}
		partition[i] = pgtype.Int4{Int32: reqs[i].Origin.Partition, Valid: true}
	}
	r.place[3] = id
	var topic any = storable(reqs[0].Origin.Topic)
	if r.form == mixed {
		topic = topics(reqs)
	}
	r.place = append(r.place, at, topic, partition, offset)
	return r
}

// timeOf is the time of an origin, or null. A time outside the calendar comes from a broken
// producer. The time is only for people, so the time is dropped, and the event can still be
// stored.
func timeOf(o *dedup.Origin) (at pgtype.Timestamptz) {
	if y := o.Time.Year(); !o.Time.IsZero() && y >= 1 && y <= 9999 {
		at = pgtype.Timestamptz{Time: o.Time, Valid: true}
	}
	return at
}

// readOrigin makes an origin of the columns of a row.
func readOrigin(topic string, partition pgtype.Int4, offset pgtype.Int8,
	at pgtype.Timestamptz) dedup.Origin {
	o := dedup.Origin{Topic: topic, Partition: partition.Int32, Offset: offset.Int64}
	if at.Valid {
		o.Time = at.Time.UTC()
	}
	return o
}

// compact puts numbers in place of tenant, scope, type and origin. The scope stays, for the
// horizon.
func (r *requestRows) compact(at column[pgtype.Timestamptz], offset column[pgtype.Int8]) {
	places := r.places
	kinds, origins, ids := make([]int32, len(places)), make([]int32, len(places)),
		make(column[pgtype.UUID], len(places))
	for i, p := range places {
		kinds[i], origins[i], ids[i] = p.kind, p.origin, p.id
	}
	r.place[0] = kinds
	if r.form == alike {
		r.place[0] = kinds[0]
	}
	r.place[2], r.place[3] = origins, ids
	r.place = append(r.place, at, offset)
}

// shareColumns reports whether two requests differ in ID, fingerprint, partition, offset and time
// only.
func shareColumns(a, b *dedup.Request) bool {
	return a.Key.Tenant == b.Key.Tenant && a.Key.Scope == b.Key.Scope && a.Key.Type == b.Key.Type &&
		a.Position == b.Position && a.Retention == b.Retention && a.AnyAge == b.AnyAge &&
		a.Origin.Topic == b.Origin.Topic
}

// mixedArgs returns the first nine arguments as arrays. The place of the IDs is empty.
func mixedArgs(reqs []dedup.Request, short bool) []any {
	n := len(reqs)
	keys := newKeyRows(n)
	generation, retry := make([]int64, n), make([]int64, n)
	retention, anyAge := make([]int64, n), make([]bool, n)
	for i := range reqs {
		q := &reqs[i]
		keys.add(&q.Key)
		generation[i], retry[i] = int64(q.Position.Generation), int64(q.Position.Retry)
		retention[i], anyAge[i] = microseconds(q.Retention), q.AnyAge
	}
	return append(make([]any, 0, 15), keys.tenant, keys.scope, keys.typ, nil,
		fingerprints(reqs, short), generation, retry, retention, anyAge)
}

func topics(reqs []dedup.Request) []string {
	all := make([]string, len(reqs))
	for i := range reqs {
		all[i] = storable(reqs[i].Origin.Topic)
	}
	return all
}

// fingerprints are those of requests, with nil for a request without one. The result is nil if
// no request has one: unnest then gives nulls. In the compact layout, checksums are short. A second
// fingerprint follows the first: the texts cut after 16 bytes.
func fingerprints(reqs []dedup.Request, short bool) [][]byte {
	var all [][]byte
	for i := range reqs {
		if b := reqs[i].Fingerprint.Bytes(); b != nil {
			if all == nil {
				all = make([][]byte, len(reqs))
			}
			all[i] = b
			if short && reqs[i].Fingerprint.IsChecksum() {
				all[i] = shortChecksum(b)
			} else if second := reqs[i].Second(); second != nil {
				all[i] = slices.Concat(b, second)
			}
		}
	}
	return all
}

// shortChecksum is a checksum in the compact layout: a number from 1 to 999, in two bytes.
func shortChecksum(b []byte) []byte {
	return binary.BigEndian.AppendUint16(nil, uint16(binary.BigEndian.Uint32(b)%999+1))
}

// tokens returns the token of each request. t is that of the call.
func (r *requestRows) tokens(t dedup.Token) column[pgtype.UUID] {
	all := make(column[pgtype.UUID], len(r.reqs))
	for i := range r.reqs {
		all[i] = pgtype.UUID{Bytes: r.reqs[i].TokenOr(t), Valid: true}
	}
	return all
}

// insert returns the arguments of insert_*.sql, and more.
func (r *requestRows) insert(more ...any) []any { return slices.Concat(r.place, more) }

// existing returns the arguments $1 to $10 of existing_*.sql and look_*.sql, and more.
func (r *requestRows) existing(more ...any) []any { return slices.Concat(r.place[:10], more) }

// endRows are the columns of completions, without keys.
type endRows struct {
	retention      []int64
	status, reason []string
	retry          []int64
	schema         []pgtype.Int8
	result         [][]byte
}

func newEndRows(n int) *endRows {
	return &endRows{make([]int64, 0, n), make([]string, 0, n), make([]string, 0, n),
		make([]int64, 0, n), make([]pgtype.Int8, 0, n), make([][]byte, 0, n)}
}

func (r *endRows) add(c *dedup.Completion) error {
	if c.Retention <= 0 {
		return fmt.Errorf("key %q: retention must be positive", c.Key)
	}
	status, reason, result := "done", "", c.Result
	switch {
	case c.Dead != "":
		status, reason, result = "dead", cut(storable(c.Dead)), dedup.Result{}
	case c.Retry != 0:
		status, result = "moved", dedup.Result{}
	}
	r.retention = append(r.retention, microseconds(c.Retention))
	r.status, r.reason = append(r.status, status), append(r.reason, reason)
	r.retry = append(r.retry, int64(c.Retry))
	r.schema = append(r.schema, pgtype.Int8{Int64: int64(result.Schema), Valid: !result.IsZero()})
	r.result = append(r.result, result.Data)
	return nil
}

func (r *endRows) args() []any {
	return []any{r.retention, r.status, r.reason, r.retry, r.schema, r.result}
}

// storable replaces bytes of s that Postgres cannot store. Texts of others, such as an error's,
// must not make an event impossible to store (P-22).
func storable(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// cut shortens s to at most [dedup.MaxReason] bytes, at the end of a character.
func cut(s string) string {
	if len(s) <= dedup.MaxReason {
		return s
	}
	n := dedup.MaxReason
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// microseconds is d in units of the server's clock, at least 1.
func microseconds(d time.Duration) int64 { return max(1, d.Microseconds()) }

// milliseconds is d as a setting of a session, rounded up, because zero means no limit. The maximum
// of the server is 24 days.
func milliseconds(d time.Duration) string {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	return strconv.FormatInt(min(max(1, int64(ms)), 1<<31-1), 10)
}
