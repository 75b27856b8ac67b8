package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
)

// Inspect implements [dedup.Operator]: one pipeline. Redis keeps neither [dedup.Record.Tx], which
// is always false, nor Created, which is zero. Changed is derived from the TTL: zero for a done
// event. A record that the copy of a later attempt has released is shown as [dedup.Waiting].
func (s *Store) Inspect(ctx context.Context, keys ...dedup.Key) ([]dedup.Record, error) {
	for i := range keys {
		if err := keys[i].Validate(); err != nil {
			return nil, err
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	records, err := s.inspect(ctx, keys)
	if err != nil {
		return nil, s.unavailable(ctx, "inspect", err)
	}
	return records, nil
}

func (s *Store) inspect(ctx context.Context, keys []dedup.Key) ([]dedup.Record, error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	t, calls := dedup.NewToken(), make([]call, len(keys))
	for i := range keys {
		calls[i] = call{script: inspectScript, key: s.key(keys[i]), token: t}
	}
	if err := s.runScripts(ctx, calls); err != nil {
		return nil, err
	}
	var records []dedup.Record
	for i := range calls {
		p := calls[i].reply
		if p.code == "none" {
			continue
		}
		r, err := decode(p.value, checkOf(keys[i]))
		if err == nil && p.code != "look" {
			err = fmt.Errorf("unexpected reply %q", p.code)
		}
		if err != nil {
			return nil, keyError(keys[i], err)
		}
		records = append(records, r.view(keys[i], now, p.left))
	}
	return records, nil
}

// view is the representation of r for an operator. now is the server's time and ttl the
// remaining life of r, both in milliseconds.
func (r *record) view(k dedup.Key, now, ttl int64) dedup.Record {
	v := dedup.Record{
		Key: k, Position: r.position, Doubtful: r.uncertain, Fence: r.fence, Failures: r.failures,
		Takeovers: r.takeovers,
		First:     r.first, Reason: r.reason, Compared: r.fingerprint.Comparison(),
	}
	switch {
	case r.state == pending:
		v.State = dedup.Claimed
	case r.state == done:
		v.State = dedup.Finished
	case r.state == dead:
		v.State = dedup.GivenUp
	case r.reopened || r.position != (dedup.Position{}):
		v.State = dedup.Waiting
	default:
		v.State = dedup.Released
	}
	if ttl >= 0 {
		v.Expires = time.UnixMilli(now + ttl).UTC()
	}
	sound := ttl >= 0 && ttl <= r.total // otherwise not set by this store, see leaseLeft
	if sound {
		v.Changed = time.UnixMilli(now + ttl - r.total).UTC()
	}
	if r.state == pending {
		v.Lease = time.Duration(r.leaseLeft(ttl)) * time.Millisecond
	}
	return v
}

// Forget implements [dedup.Operator]: one round trip. Fences begin anew. The birth of the scope
// stays: an event older than the horizon is still [dedup.TooOld]. If go-redis repeats a deletion
// after a lost reply, the error matches [dedup.ErrNotFound].
func (s *Store) Forget(ctx context.Context, key dedup.Key) error {
	if err := key.Validate(); err != nil {
		return err
	}
	check := binary.BigEndian.AppendUint32(nil, checkOf(key))
	p, err := s.one(ctx, call{script: forgetScript, key: s.key(key), token: dedup.NewToken(),
		args: []any{check}}, key)
	switch {
	case err != nil:
	case p.code == "ok":
	case p.code == "none":
		return keyError(key, dedup.ErrNotFound)
	case p.code == "busy":
		return keyError(key, fmt.Errorf("%w, %v are left of its lease", dedup.ErrHeld,
			time.Duration(p.left)*time.Millisecond))
	default:
		err = keyError(key, fmt.Errorf("unexpected reply %q", p.code))
	}
	if err != nil {
		return s.unavailable(ctx, "forget", err)
	}
	return nil
}

// Discard implements [dedup.Operator]: one round trip, and at most two more. The record is kept
// for the longer one of retention and the record's own. If a holder then completes without a
// result, the event is done all the same, and the holder gets [dedup.LostError].
func (s *Store) Discard(ctx context.Context, key dedup.Key, retention time.Duration,
	reason string) error {
	if err := key.Validate(); err != nil {
		return err
	}
	if retention <= 0 {
		return keyError(key, errRetention)
	}
	settled, err := s.discard(ctx, key, millis(retention), cut(dedup.ReasonDiscarded+reason))
	switch {
	case err != nil:
		return s.unavailable(ctx, "discard", err)
	case settled:
		return keyError(key, dedup.ErrSettled)
	}
	return nil
}

func (s *Store) discard(ctx context.Context, key dedup.Key, ttl int64,
	reason string) (settled bool, err error) {
	// After the retention the event is too old, not new (rule 8).
	if _, err := s.birth(ctx, key.Scope); err != nil {
		return false, err
	}
	t := dedup.NewToken()
	r := record{state: dead, check: checkOf(key), token: t, total: ttl, reason: reason}
	p, err := s.one(ctx, call{script: discardScript, key: s.key(key), token: t,
		args: []any{r.encode(), ttl, reason}}, key)
	switch {
	case err != nil:
		return false, err
	case p.code == "ok":
		return false, nil
	case p.code == "done":
		return true, nil
	}
	return false, keyError(key, fmt.Errorf("unexpected reply %q", p.code))
}

// one runs a script on the record of key. An unreadable record, or that of another key, is an error
// (rule 35, R-15).
func (s *Store) one(ctx context.Context, c call, key dedup.Key) (reply, error) {
	calls := []call{c}
	if err := s.runScripts(ctx, calls); err != nil {
		return reply{}, err
	}
	p := calls[0].reply
	if p.code == "look" {
		if _, err := decode(p.value, checkOf(key)); err != nil {
			return reply{}, keyError(key, err)
		}
	}
	return p, nil
}

// Import implements [dedup.Operator]: one pipeline, and one round trip a minute for each scope.
// [dedup.Imported.Tx] has no effect: Redis has no transactions of handlers. An import also sets the
// birth of the scopes. After an error some events may be imported. Repeat the call. The second call
// counts only the events that the failed call did not add.
func (s *Store) Import(ctx context.Context, events []dedup.Imported) (added int, err error) {
	scopes := make(map[string]struct{})
	for i := range events {
		if err := events[i].Key.Validate(); err != nil {
			return 0, err
		}
		if events[i].Retention <= 0 {
			return 0, keyError(events[i].Key, errRetention)
		}
		scopes[events[i].Key.Scope] = struct{}{}
	}
	for scope := range scopes {
		if _, err := s.birth(ctx, scope); err != nil { // as in Discard
			return 0, s.unavailable(ctx, "import", err)
		}
	}
	if added, err = s.imported(ctx, events); err != nil {
		return 0, s.unavailable(ctx, "import", err)
	}
	return added, nil
}

func (s *Store) imported(ctx context.Context, events []dedup.Imported) (added int, err error) {
	t := dedup.NewToken()
	sets, once := s.newCommands(len(events)), make(map[dedup.Key]struct{}, len(events))
	var keys []dedup.Key
	for i := range events {
		e := &events[i]
		if _, twice := once[e.Key]; twice {
			continue
		}
		once[e.Key] = struct{}{}
		keys = append(keys, e.Key)
		sets.add(setNew, e.Key, &record{state: done, token: t, first: e.Origin},
			millis(e.Retention))
	}
	if err := sets.send(ctx, s.client); err != nil {
		return 0, err
	}
	for i := range keys {
		if sets.absent(i) {
			added++
			continue
		}
		r, err := decode(sets.reply(i), sets.checks[i])
		if err != nil {
			return 0, keyError(keys[i], err)
		}
		if r.token == t { // a repetition after a lost reply
			added++
		}
	}
	return added, nil
}
