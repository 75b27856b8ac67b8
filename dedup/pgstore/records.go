package pgstore

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// states are the states behind the values of column status.
var states = map[string]dedup.State{
	"claimed": dedup.Claimed, "released": dedup.Released, "done": dedup.Finished,
	"dead": dedup.GivenUp, "moved": dedup.Waiting,
}

// readRecords calls yield with each row of record_*.sql and the row's number, until yield
// returns false.
func readRecords(rows pgx.Rows, yield func(r dedup.Record, n int64) bool) (count int, err error) {
	defer rows.Close()
	for rows.Next() {
		var (
			r                    dedup.Record
			tenant, scope, typ   pgtype.Text
			status               string
			version              int16
			failures, takeovers  int32
			generation, retry, n int64
			fence                int64
			lease, offset        pgtype.Int8
			topic, reason        pgtype.Text
			partition            pgtype.Int4
			at                   pgtype.Timestamptz
			compared             pgtype.Int4
		)
		err := rows.Scan(&r.Tx, &tenant, &scope, &typ, &r.Key.ID, &status, &version, &r.Doubtful,
			&failures, &takeovers, &generation, &retry, &fence, &lease, &topic, &partition, &offset,
			&at, &reason, &r.Created, &r.Changed, &r.Expires, &compared, &n)
		if err != nil {
			return count, err
		}
		count++
		r.Key.Tenant, r.Key.Scope, r.Key.Type = tenant.String, scope.String, typ.String
		state, known := states[status]
		if !known || version != 1 {
			return count, fmt.Errorf("key %q: %w", r.Key, errUnknown)
		}
		r.State, r.Fence, r.Failures, r.Takeovers = state, uint64(fence), uint32(failures),
			uint32(takeovers)
		r.Position = dedup.Position{Generation: uint32(generation), Retry: uint32(retry)}
		if state == dedup.Claimed {
			r.Lease = time.Duration(lease.Int64) * time.Microsecond
		}
		r.Compared = comparison(compared)
		r.First, r.Reason = readOrigin(topic.String, partition, offset, at), reason.String
		r.Created, r.Changed, r.Expires = r.Created.UTC(), r.Changed.UTC(), r.Expires.UTC()
		if !yield(r, n) {
			break
		}
	}
	rows.Close()
	return count, rows.Err()
}

// comparison derives the kind of comparison from the length of a fingerprint.
func comparison(length pgtype.Int4) dedup.Comparison {
	switch {
	case !length.Valid:
		return dedup.NotCompared
	case int(length.Int32) < len(dedup.Fingerprint{}):
		return dedup.ByChecksum
	default:
		return dedup.ByFingerprint
	}
}
