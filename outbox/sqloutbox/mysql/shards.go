package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/idem-go/idem/outbox"
)

// maxRelay is the greatest length of the name of a relay, in bytes.
const maxRelay = 255

// isExpired, leaseLeft (in microseconds) and lease are expressions by the clock of the server, as
// of the begin of the statement.
const (
	isExpired = "coalesce(lease_until <= UTC_TIMESTAMP(6), 1)"
	leaseLeft = "coalesce(timestampdiff(MICROSECOND, UTC_TIMESTAMP(6), lease_until), 0)"
)

func lease(d time.Duration) string {
	return "UTC_TIMESTAMP(6) + INTERVAL " + strconv.FormatInt(d.Microseconds(), 10) + " MICROSECOND"
}

// Hold implements [outbox.Store]. Relays that call Hold at the same time never wait for each other.
// A shard is neither renewed nor taken while a person retries or skips a row of it.
//
// A lease that ended, and that no other relay took, is renewed with its epoch: no other relay can
// have published in between.
func (o *Outbox) Hold(
	ctx context.Context, relay string, d time.Duration, share bool,
) (held []outbox.Lease, err error) {
	if len(relay) > maxRelay || relay == "" {
		return nil, fmt.Errorf("mysql: outbox: the name of a relay must have 1 to %d bytes, not %d",
			maxRelay, len(relay))
	}
	err = o.bounded(ctx, func(conn *sql.Conn) error {
		among, err := keepAlive(ctx, conn, relay, d)
		if err != nil {
			return err
		}
		return inTx(ctx, conn, func(tx querier) (err error) {
			held, err = holdShards(ctx, tx, relay, d, among, share)
			return err
		})
	})
	if err != nil {
		return nil, explain("hold shards", err)
	}
	return held, nil
}

// keepAlive counts the relays that are alive, and deletes those that are gone for an hour. Both
// statements are transactions of their own, so that no relay waits for another one's.
func keepAlive(
	ctx context.Context, q querier, relay string, d time.Duration,
) (among peers, err error) {
	until := lease(d)
	_, err = exec(ctx, q, "INSERT INTO idem_outbox_relays (relay, alive_until) VALUES ("+
		text(relay)+", "+until+") ON DUPLICATE KEY UPDATE alive_until = "+until)
	if err != nil {
		return peers{}, err
	}
	const gone = "alive_until < UTC_TIMESTAMP(6) - INTERVAL 1 HOUR"
	var old int
	err = one(ctx, q, "SELECT coalesce(sum(alive_until > UTC_TIMESTAMP(6)), 0), "+
		"coalesce(sum(alive_until > UTC_TIMESTAMP(6) AND relay < "+text(relay)+"), 0), "+
		"coalesce(sum("+gone+"), 0) FROM idem_outbox_relays", &among.alive, &among.before, &old)
	if err == nil && old > 0 {
		_, err = exec(ctx, q, "DELETE FROM idem_outbox_relays WHERE "+gone+" LIMIT 100")
	}
	return among, err
}

// holdShards reads without locks, decides, locks the rows by their number, and looks again. A scan
// that locks would lock the rows of other relays for a moment, and they would leave them out.
func holdShards(
	ctx context.Context, tx querier, relay string, d time.Duration, among peers, share bool,
) ([]outbox.Lease, error) {
	shards, err := readShards(ctx, tx, "ORDER BY shard")
	if err != nil {
		return nil, err
	}
	p := planShare(shards, relay, among, share)
	mine, err := lockShards(ctx, tx, slices.Concat(p.keep, p.give), "", outbox.Shards)
	if err != nil {
		return nil, err
	}
	free, err := lockShards(ctx, tx, p.free,
		" AND (relay IS NULL OR lease_until <= UTC_TIMESTAMP(6))", p.take)
	if err != nil {
		return nil, err
	}
	var keep, give, take []int
	var held []outbox.Lease
	locked := map[int]bool{}
	for i := range mine {
		s := &mine[i]
		locked[s.shard] = true
		switch {
		case s.relay != relay: // taken meanwhile
		case slices.Contains(p.give, s.shard):
			give = append(give, s.shard)
		default:
			keep = append(keep, s.shard)
			held = append(held, s.lease(d))
		}
	}
	for i := range shards { // a locked row: the lease is valid until its end
		if s := &shards[i]; s.relay == relay && !locked[s.shard] && !s.expired {
			held = append(held, s.lease(s.left))
		}
	}
	for i := range free {
		if s := &free[i]; s.isFree(relay) {
			s.epoch++
			take = append(take, s.shard)
			held = append(held, s.lease(d))
		}
	}
	until := lease(d)
	for _, u := range []struct {
		set    string
		shards []int
	}{
		{"lease_until = " + until, keep},
		{"relay = NULL, lease_until = NULL", give},
		{"relay = " + text(relay) + ", epoch = epoch + 1, lease_until = " + until, take},
	} {
		if len(u.shards) == 0 {
			continue
		}
		_, err := exec(ctx, tx, "UPDATE idem_outbox_shards FORCE INDEX (PRIMARY) SET "+u.set+
			" WHERE shard IN "+numbers(u.shards))
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(held, func(a, b outbox.Lease) int { return a.Shard - b.Shard })
	return held, nil
}

// lockShards locks at most limit rows by their number, as of now. Rows that others have locked are
// left out.
func lockShards(
	ctx context.Context, tx querier, shards []int, and string, limit int,
) ([]shardRow, error) {
	if len(shards) == 0 || limit == 0 {
		return nil, nil
	}
	return readShards(ctx, tx, "FORCE INDEX (PRIMARY) WHERE shard IN "+numbers(shards)+and+
		" ORDER BY shard LIMIT "+strconv.Itoa(limit)+" FOR UPDATE SKIP LOCKED")
}

func readShards(ctx context.Context, q querier, rest string) (all []shardRow, err error) {
	err = each(ctx, q, "SELECT shard, coalesce(relay, ''), epoch, "+isExpired+", "+leaseLeft+
		" FROM idem_outbox_shards "+rest, func(rows *sql.Rows) error {
		var s shardRow
		var left int64
		if err := rows.Scan(&s.shard, &s.relay, &s.epoch, &s.expired, &left); err != nil {
			return err
		}
		s.left = time.Duration(left) * time.Microsecond
		all = append(all, s)
		return nil
	})
	return all, err
}

// Leave implements [outbox.Store].
func (o *Outbox) Leave(ctx context.Context, relay string) error {
	return explain("leave shards", o.bounded(ctx, func(conn *sql.Conn) error {
		err := inTx(ctx, conn, func(tx querier) error {
			shards, err := readShards(ctx, tx, "ORDER BY shard")
			if err != nil {
				return err
			}
			p := planShare(shards, relay, peers{}, false)
			if len(p.keep) == 0 {
				return nil
			}
			_, err = exec(ctx, tx, "UPDATE idem_outbox_shards FORCE INDEX (PRIMARY) "+
				"SET relay = NULL, lease_until = NULL WHERE shard IN "+numbers(p.keep)+
				" AND relay = "+text(relay)+" ORDER BY shard")
			return err
		})
		if err == nil {
			_, err = exec(ctx, conn, "DELETE FROM idem_outbox_relays WHERE relay = "+text(relay))
		}
		return err
	}))
}
