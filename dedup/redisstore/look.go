package redisstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/idem-go/idem/dedup"
	"github.com/redis/go-redis/v9"
)

// Look implements [dedup.Looker]: one pipeline, on a cluster one to each node at the same time. If
// a request has no [dedup.Request].AnyAge, the store also asks for the server's time and for the
// birth of the scope, once a minute each. An unknown birth is asked for each time.
func (s *Store) Look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return err
	}
	if err := s.look(ctx, reqs, answers); err != nil {
		clear(answers)
		return s.unavailable(ctx, "look", err)
	}
	return nil
}

func (s *Store) look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	old, err := s.tooOld(ctx, reqs, false, s.knownBirth)
	if err != nil {
		return err
	}
	t, calls := dedup.NewToken(), make([]call, len(reqs))
	for i := range reqs {
		calls[i] = call{script: lookScript, key: s.key(reqs[i].Key), token: t}
	}
	if err := s.runTexts(ctx, calls); err != nil {
		return err
	}
	for i := range calls {
		p := &calls[i].reply
		if p.code == "none" {
			if len(old) > 0 && old[i] {
				answers[i].Verdict = dedup.TooOld
			}
			continue
		}
		r, err := decode(p.value, checkOf(reqs[i].Key))
		if err == nil && p.code != "look" {
			err = fmt.Errorf("unexpected reply %q", p.code)
		}
		if err != nil {
			return keyError(reqs[i].Key, err)
		}
		answers[i] = s.refused(&r, &reqs[i], p.left)
	}
	return nil
}

// refused is the answer of Claim to a request that gets no claim. Zero stands for a grant. ttl
// is the remaining life of r.
func (s *Store) refused(r *record, req *dedup.Request, ttl int64) dedup.Answer {
	if a, ok := s.settled(r, req); ok || r.state != pending {
		return a
	}
	a := r.underClaim(req, r.leaseLeft(ttl))
	if a.Verdict == 0 {
		return dedup.Answer{}
	}
	return a
}

// runTexts runs calls in pipelines and sends their text, even to a server with the scripts.
func (s *Store) runTexts(ctx context.Context, calls []call) error {
	for part := range slices.Chunk(calls, maxPipeline) {
		cmds := make([]*redis.Cmd, len(part))
		for i := range part {
			cmds[i] = part[i].cmd(ctx, false)
		}
		if err := exec(ctx, s.client, cmds); err != nil {
			return err
		}
		for i := range part {
			if err := part[i].parse(cmds[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
