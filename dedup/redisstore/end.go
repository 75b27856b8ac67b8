package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
)

// Renew implements [dedup.Store]: one pipeline. If a server of a cluster is down, or a record cannot
// be read, the other claims are renewed all the same, and the error is a [*dedup.PartError].
func (s *Store) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	if lease <= 0 {
		return errLease
	}
	calls := make([]call, len(claims))
	for i := range claims {
		calls[i] = s.call(renewScript, &claims[i], millis(lease))
	}
	var failure error
	for part := range slices.Chunk(calls, maxPipeline) {
		err := s.runPart(ctx, part)
		failure = cmp.Or(failure, err)
		answered := func(c call) bool { return c.reply.code != "" }
		if err != nil && !slices.ContainsFunc(part, answered) { // the others would fail, too
			break
		}
	}
	return s.renewed(ctx, calls, failure)
}

// renewed returns the result of the calls of Renew, which may have replies in spite of the failure.
func (s *Store) renewed(ctx context.Context, calls []call, failure error) error {
	var part dedup.PartError
	for i := range calls {
		held, err := calls[i].held()
		switch {
		case err != nil:
			failure = cmp.Or(failure, err)
			part.Failed = append(part.Failed, i)
		case !held:
			part.Lost = append(part.Lost, i)
		}
	}
	if len(part.Failed) == 0 {
		return dedup.Lost(part.Lost)
	}
	part.Err = s.unavailable(ctx, "renew", failure)
	return &part
}

// Release implements [dedup.Store]: one pipeline.
func (s *Store) Release(ctx context.Context, claims []dedup.Release) error {
	calls := make([]call, len(claims))
	for i := range claims {
		if claims[i].Retention <= 0 {
			return keyError(claims[i].Key, errRetention)
		}
		calls[i] = s.call(releaseScript, &claims[i].Claim, int(claims[i].Outcome),
			millis(claims[i].Retention))
	}
	return s.end(ctx, "release", calls)
}

func (s *Store) call(sc *script, c *dedup.Claim, args ...any) call {
	return call{script: sc, key: s.key(c.Key), token: c.Token, args: args}
}

// end runs calls that reply ok or lost.
func (s *Store) end(ctx context.Context, verb string, calls []call) error {
	if err := s.runScripts(ctx, calls); err != nil {
		return s.unavailable(ctx, verb, err)
	}
	var lost []int
	for i := range calls {
		held, err := calls[i].held()
		if err != nil {
			return s.unavailable(ctx, verb, err)
		}
		if !held {
			lost = append(lost, i)
		}
	}
	return dedup.Lost(lost)
}

func (c *call) held() (bool, error) {
	switch c.reply.code {
	case "ok":
		return true, nil
	case "lost":
		return false, nil
	}
	if c.reply.code == "look" {
		if _, err := parse(c.reply.value); err != nil {
			return false, fmt.Errorf("key %q: %w", c.key, err)
		}
	}
	return false, fmt.Errorf("key %q: unexpected reply %q", c.key, c.reply.code)
}

// Complete implements [dedup.Store]. Completions without a result are one pipeline of SET, for
// any holder of the claim, because the effect has happened. All others are one pipeline of
// scripts that compare first. After this store has seen a result, every completion is a script,
// because a SET could overwrite the result.
func (s *Store) Complete(ctx context.Context, completions []dedup.Completion) error {
	if len(completions) == 0 {
		return nil
	}
	for i := range completions {
		if completions[i].Retention <= 0 {
			return keyError(completions[i].Key, errRetention)
		}
		if completions[i].Dead == "" && completions[i].Retry == 0 &&
			!completions[i].Result.IsZero() {
			s.results.Store(true)
		}
	}
	looks := s.results.Load()
	b := batch{ctx: ctx, store: s, done: completions, lost: make([]bool, len(completions)),
		sets: s.newCommands(len(completions))}
	for i := range completions {
		b.add(i, looks)
	}
	if err := b.run(); err != nil {
		return s.unavailable(ctx, "complete", err)
	}
	var lost []int
	for i, l := range b.lost {
		if l {
			lost = append(lost, i)
		}
	}
	return dedup.Lost(lost)
}

// final is the record that c asks for, without the counts of the existing record.
func final(c *dedup.Completion) record {
	r := record{
		state: done, token: c.Token, fence: c.Fence, position: c.Position, first: c.First,
	}
	// The fingerprint of a replayed copy does not count, since the copy may have been repaired.
	if c.Position.Generation == 0 {
		r.fingerprint = c.Fingerprint
	}
	switch {
	case c.Dead != "":
		r.state, r.reason, r.total = dead, cut(c.Dead), millis(c.Retention)
	case c.Retry != 0:
		r.state, r.position.Retry, r.total = open, c.Retry, millis(c.Retention)
	default:
		r.result = c.Result
	}
	return r
}

// batch is one call of Complete.
type batch struct {
	ctx   context.Context
	store *Store
	done  []dedup.Completion
	lost  []bool

	sets   *commands
	setFor []int // command j is for done[setFor[j]]

	calls   []call
	callFor []int
}

func (b *batch) add(i int, looks bool) {
	c := &b.done[i]
	r := final(c)
	if r.state == done && !looks {
		b.sets.add(setAny, c.Key, &r, millis(c.Retention))
		b.setFor = append(b.setFor, i)
		return
	}
	r.check = checkOf(c.Key)
	var first string
	if r.state == dead && known(&c.First) { // the origin of the dead letter (rule 6)
		first = string(appendOrigin(nil, &c.First))
	}
	b.calls = append(b.calls, call{script: completeScript, key: b.store.key(c.Key), token: c.Token,
		args: []any{
			r.encode(), millis(c.Retention), string(r.appendRest(nil)), r.position.Retry, first,
		}})
	b.callFor = append(b.callFor, i)
}

func (b *batch) run() error {
	if err := b.sets.send(b.ctx, b.store.client); err != nil {
		return err
	}
	for j := range b.setFor {
		if err := b.overwrote(j); err != nil {
			return err
		}
	}
	if err := b.store.runScripts(b.ctx, b.calls); err != nil {
		return err
	}
	for j, i := range b.callFor {
		held, err := b.calls[j].held()
		if err != nil {
			return err
		}
		b.lost[i] = !held
	}
	return nil
}

// overwrote checks the record that an unconditional completion has replaced. overwrote restores
// an earlier completion of another worker, a result or a fingerprint.
func (b *batch) overwrote(j int) error {
	i := b.setFor[j]
	c, check := &b.done[i], b.sets.checks[j]
	if b.sets.absent(j) { // the record had expired
		b.lost[i] = true
		return nil
	}
	mine := final(c)
	if holds(b.sets.reply(j), check, &c.Token, &mine.fingerprint) {
		return nil
	}
	old, err := decode(b.sets.reply(j), check)
	if err != nil {
		return keyError(c.Key, err)
	}
	repeated := old.state == done && old.token == c.Token
	// as in complete.lua
	late := old.state == open && old.token == c.Token && old.uncertain && !old.reopened &&
		old.position == c.Position
	b.lost[i] = !repeated && !late && (old.state != pending || old.token != c.Token)
	mine.check = check
	switch {
	case !old.result.IsZero():
		b.store.results.Store(true)
		return b.putBack(j, &old)
	case old.state == done && !repeated:
		return b.putBack(j, &old)
	case old.fingerprint != dedup.Fingerprint{} && mine.fingerprint != old.fingerprint:
		// with the counts of the record
		mine.fingerprint = old.fingerprint
		return b.putBack(j, &mine)
	}
	return nil
}

// putBack replaces the record just written, if that record is still there. Until then, or after
// a crash here, the event counts as done.
func (b *batch) putBack(j int, r *record) error {
	calls := []call{{
		script: restoreScript, key: b.sets.name(j), token: b.done[b.setFor[j]].Token,
		args: []any{b.sets.value(j), r.encode()},
	}}
	if err := b.store.runScripts(b.ctx, calls); err != nil {
		return err
	}
	_, err := calls[0].held()
	return err
}

// Reopen implements [dedup.Operator]: one round trip. The retention begins anew.
func (s *Store) Reopen(ctx context.Context, key dedup.Key) (dedup.Position, error) {
	if err := key.Validate(); err != nil {
		return dedup.Position{}, err
	}
	calls := []call{{script: reopenScript, key: s.key(key), token: dedup.NewToken()}}
	if err := s.runScripts(ctx, calls); err != nil {
		return dedup.Position{}, s.unavailable(ctx, "reopen", err)
	}
	p := calls[0].reply
	if p.code == "look" && p.value == "" {
		return dedup.Position{}, keyError(key, dedup.ErrNotDead)
	}
	r, err := decode(p.value, checkOf(key))
	switch {
	case err != nil:
		return dedup.Position{}, s.unavailable(ctx, "reopen", keyError(key, err))
	case p.code == "look":
		return dedup.Position{}, keyError(key, dedup.ErrNotDead)
	case p.code != "ok" || r.state != open || !r.reopened:
		return dedup.Position{}, s.unavailable(ctx, "reopen",
			keyError(key, errors.New("reply does not fit the record")))
	}
	return r.position, nil
}
