package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
)

// This file records the progress of loops on other clients than package consumer. Some stores
// delete expired events by consumed time (rule 8). Such a store deletes no event of a scope before
// the progress of the scope is known.
//
// HandleBatch gets messages, not committed offsets. The progress of a partition is the last settled
// message below which all messages since the assignment are settled. An unsettled message stops the
// progress until the message comes again and is settled.

// NoteProgress notes the progress of a partition, for callers of Settle.
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

// writeProgress records the changes, unless a recent call did. One caller writes for all.
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
		p.log.WarnContext(
			ctx, "progress cannot be recorded, the store forgets nothing meanwhile", "error",
			p.errorText(err),
		)
	case told:
		p.log.InfoContext(ctx, "progress is recorded again")
	}
}

// recordUnseen records partitions that a store does not know, without a time. The store then
// deletes no event until the loop reports the progress of these partitions.
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
			return slices.ContainsFunc(known, func(k dedup.Progress) bool {
				return k.Topic == a.Topic && k.Partition == a.Partition
			})
		})
		if err := store.RecordProgress(ctx, place.scope, unknown); err != nil {
			return err
		}
	}
	return nil
}
