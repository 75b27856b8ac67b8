package pgstore

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5/pgtype"
)

// Requests travel as arrays, one for each column: one statement of fixed text for any number of keys.

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

// requestRows are the columns of a claim.
type requestRows struct {
	keyRows
	fingerprint       [][]byte
	generation, retry []int64
	retention         []int64
	topic             []string
	partition         []int32
	offset            []int64
	at                []pgtype.Timestamptz
}

func newRequestRows(reqs []dedup.Request) *requestRows {
	n := len(reqs)
	r := &requestRows{keyRows: newKeyRows(n), fingerprint: make([][]byte, n), generation: make([]int64, n),
		retry: make([]int64, n), retention: make([]int64, n), topic: make([]string, n), partition: make([]int32, n),
		offset: make([]int64, n), at: make([]pgtype.Timestamptz, n)}
	var none dedup.Fingerprint
	for i := range reqs {
		q := &reqs[i]
		r.add(&q.Key)
		if q.Fingerprint != none {
			r.fingerprint[i] = q.Fingerprint[:]
		}
		r.generation[i], r.retry[i] = int64(q.Position.Generation), int64(q.Position.Retry)
		r.retention[i] = microseconds(q.Retention)
		r.topic[i], r.partition[i], r.offset[i] = storable(q.Origin.Topic), q.Origin.Partition, q.Origin.Offset
		// A time that no calendar has comes from a broken producer and only explains: better none than a poison event.
		if y := q.Origin.Time.Year(); !q.Origin.Time.IsZero() && y >= 1 && y <= 9999 {
			r.at[i] = pgtype.Timestamptz{Time: q.Origin.Time, Valid: true}
		}
	}
	return r
}

// insert returns the arguments $1 to $12 of insert_*.sql.
func (r *requestRows) insert() []any {
	return append(r.existing(), r.topic, r.partition, r.offset, r.at)
}

// existing returns the arguments $1 to $8 of existing_*.sql.
func (r *requestRows) existing() []any {
	return append(make([]any, 0, 14), r.tenant, r.scope, r.typ, r.id, r.fingerprint, r.generation, r.retry, r.retention)
}

// claimRows are the columns of claims that are held.
type claimRows struct {
	keyRows
	token []pgtype.UUID
}

func newClaimRows(n int) *claimRows {
	return &claimRows{keyRows: newKeyRows(n), token: make([]pgtype.UUID, 0, n)}
}

func (r *claimRows) add(c *dedup.Claim) error {
	r.keyRows.add(&c.Key)
	r.token = append(r.token, pgtype.UUID{Bytes: c.Token, Valid: true})
	return c.Key.Validate()
}

func (r *claimRows) args() []any {
	return append(make([]any, 0, 11), r.tenant, r.scope, r.typ, r.id, r.token)
}

// endRows are the columns of completions but for their keys.
type endRows struct {
	retention      []int64
	status, reason []string
	retry          []int64
	schema         []pgtype.Int8
	result         [][]byte
}

func newEndRows(n int) *endRows {
	return &endRows{make([]int64, 0, n), make([]string, 0, n), make([]string, 0, n), make([]int64, 0, n),
		make([]pgtype.Int8, 0, n), make([][]byte, 0, n)}
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

// storable is s as Postgres can hold it: text of others, such as an error's, must never make an event that cannot be
// stored (P-22).
func storable(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// cut is s without what is beyond [dedup.MaxReason], and without half a character.
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

// microseconds is what the server's clock counts in; a shorter time is one of them.
func microseconds(d time.Duration) int64 { return max(1, d.Microseconds()) }

// milliseconds is d as a setting of a session, rounded up, since zero would mean no limit. The server knows 24 days.
func milliseconds(d time.Duration) string {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	return strconv.FormatInt(min(max(1, int64(ms)), 1<<31-1), 10)
}
