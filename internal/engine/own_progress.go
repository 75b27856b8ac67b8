package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
)

// This file is about the progress of loops on other clients than package consumer. A store that forgets in consumed time (rule 8)
// deletes nothing of a scope until it knows how far the scope has consumed.
//
// HandleBatch sees messages and not offsets that were committed. What it records of a partition is the last settled message below
// which all messages are settled that this processor was given since the partition was assigned. A message that was given and is not
// settled, in this call or an earlier one, holds the progress of its partition back until it has come again and is settled.

// NoteProgress says how far a partition is settled, for loops that call [Processor.Settle]. Unlike [Processor.RecordProgress] it may be
// called for each message: the stores are told at most every 10 s, in a call that takes a second at most, by whoever comes then, and
// at [Processor.Close]. An error is logged and the record is repeated later. [Processor.HandleBatch] and package lane do so by themselves.
// Safe for concurrent use.
func (p *Processor) NoteProgress(ctx context.Context, progress dedup.Progress) {
	g := p.own
	if g == nil {
		return
	}
	now := time.Now()
	g.mu.Lock()
	g.used = true
	c := g.of(progress.Topic, progress.Partition)
	first := !c.begun
	c.change = c.change || c.reported != progress
	c.begun, c.assigned, c.reported = true, false, progress
	due := first || !now.Before(g.next)
	g.mu.Unlock()
	if due {
		p.writeProgress(ctx, first)
	}
}

// writeProgress records what has changed, unless it did so a moment ago. Another call that is at it does it for all.
func (p *Processor) writeProgress(ctx context.Context, now bool) {
	g := p.own
	changed, unseen := g.take(now)
	if len(changed)+len(unseen) == 0 {
		return
	}
	err := within(context.WithoutCancel(ctx), progressLimit, func(ctx context.Context) error {
		return cmp.Or(p.recordUnseen(ctx, unseen), p.RecordProgress(ctx, changed))
	})
	told := g.wrote(changed, unseen, err)
	switch {
	case told && err != nil:
		p.log.WarnContext(ctx, "progress cannot be recorded, the store forgets nothing meanwhile", "error", p.errorText(err))
	case told:
		p.log.InfoContext(ctx, "progress is recorded again")
	}
}

// recordUnseen records those partitions, without a time, of which a store knows nothing: it forgets nothing until their loop has said how
// far they are.
func (p *Processor) recordUnseen(ctx context.Context, all []dedup.Progress) error {
	if len(all) == 0 {
		return nil
	}
	topics := make([]string, 0, len(all))
	for i := range all {
		topics = append(topics, all[i].Topic)
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	for _, place := range p.places() {
		store, ok := place.access.store.(dedup.ProgressRecorder)
		if !ok {
			continue
		}
		known, err := store.Progress(ctx, place.scope, topics...)
		if err != nil {
			return err
		}
		unknown := slices.DeleteFunc(slices.Clone(all), func(a dedup.Progress) bool {
			return slices.ContainsFunc(known, func(k dedup.Progress) bool { return k.Topic == a.Topic && k.Partition == a.Partition })
		})
		if err := store.RecordProgress(ctx, place.scope, unknown); err != nil {
			return err
		}
	}
	return nil
}
