package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/dedup"
)

// LostOffsetsPolicy says what happens when nothing is committed for a partition, although the store has on record that this
// scope has consumed it: the committed offsets are gone. Kafka deletes those of a group that was empty for a week
// (offsets.retention.minutes); or the group was renamed and kept its scope; or a person reset it (K-19). To begin at the
// oldest record would deliver again what the store may have forgotten, to begin at the newest would skip what was never
// consumed. It needs a store that can tell how far a scope is; of others nothing is noticed.
type LostOffsetsPolicy uint8

const (
	// RefuseLost ends Run with an [*OffsetsLostError], for a person to choose. A group that inherits the scope of another one
	// ([Config].Scope) has chosen: it begins where Start says, and the store knows what was handled.
	RefuseLost LostOffsetsPolicy = iota
	// ResumeLost goes on where the store says, or at the nearest record there is. Up to 10 s of events are delivered again,
	// and known.
	ResumeLost
	// StartLost begins where Start says.
	StartLost
)

// String names the policy.
func (p LostOffsetsPolicy) String() string { return enumName(int(p), "refuse", "resume", "start") }

// OffsetsLostError says that committed offsets are gone, see [LostOffsetsPolicy]. Nothing was consumed.
type OffsetsLostError struct {
	Scope string
	// Known is where the store says that each partition goes on.
	Known []dedup.Progress
}

// Error names the partitions and the choices.
func (e *OffsetsLostError) Error() string {
	var b strings.Builder
	for i, p := range e.Known {
		if i == 10 {
			fmt.Fprintf(&b, " and %d more", len(e.Known)-i)
			break
		}
		fmt.Fprintf(&b, " %s/%d at %d", p.Topic, p.Partition, p.Next)
	}
	return fmt.Sprintf("nothing is committed for partitions that scope %s has consumed:%s (set Config.OnLostOffsets: ResumeLost to go on "+
		"there, StartLost to begin where Start says)", e.Scope, b.String())
}

// lostOffsets acts on partitions without a committed offset that the store knows. A retry topic needs no such look: it is read
// from its oldest record in any case, and the store knows which copies ran.
func (g *gapGuard) lostOffsets(sess sarama.ConsumerGroupSession, fresh map[partition]bool) (moved bool, err error) {
	policy := g.h.cfg.OnLostOffsets
	if policy == RefuseLost && g.h.cfg.Scope != g.h.cfg.Group {
		policy = StartLost
	}
	if len(fresh) == 0 || policy == StartLost {
		return false, nil
	}
	known, err := g.known(sess.Context(), fresh)
	if err != nil {
		return false, err
	}
	if known, err = g.stillThere(known); err != nil || len(known) == 0 {
		return false, err
	}
	g.h.log.Error("committed offsets are gone, but the store knows how far they were", "scope", g.h.cfg.Scope,
		"partitions", len(known), "policy", policy.String())
	if policy == RefuseLost {
		return false, &OffsetsLostError{Scope: g.h.cfg.Scope, Known: known}
	}
	for _, p := range known {
		oldest, err := g.client.GetOffset(p.Topic, p.Partition, sarama.OffsetOldest)
		if err != nil {
			return false, fmt.Errorf("read the oldest offset of %s/%d: %w", p.Topic, p.Partition, err)
		}
		sess.MarkOffset(p.Topic, p.Partition, max(p.Next, oldest), "")
	}
	return true, nil
}

// stillThere leaves out partitions whose log ends before what the store knows: their topic was made anew, Kafka has dropped
// the offsets of the old one, and there is nothing to go on with. They begin where Start says; what is still in the store is
// known.
func (g *gapGuard) stillThere(known []dedup.Progress) (same []dedup.Progress, err error) {
	for _, p := range known {
		newest, err := g.client.GetOffset(p.Topic, p.Partition, sarama.OffsetNewest)
		if err != nil {
			return nil, fmt.Errorf("read the newest offset of %s/%d: %w", p.Topic, p.Partition, err)
		}
		if p.Next > newest {
			g.h.log.Warn("the log ends before what the store knows, the topic was made anew: beginning where Start says",
				"topic", p.Topic, "partition", p.Partition, "known", p.Next, "end", newest, "start", g.h.cfg.Start.String())
			continue
		}
		same = append(same, p)
	}
	return same, nil
}

// known asks the stores. A progress of zero says nothing.
func (g *gapGuard) known(ctx context.Context, fresh map[partition]bool) (known []dedup.Progress, err error) {
	topics := make(map[string]bool)
	for p := range fresh {
		topics[p.topic] = true
	}
	names := make([]string, 0, len(topics))
	for topic := range topics {
		names = append(names, topic)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found := make(map[partition]dedup.Progress)
	for _, store := range g.h.proc.Stores() {
		r, ok := store.(dedup.ProgressRecorder)
		if !ok {
			continue
		}
		all, err := r.Progress(ctx, g.h.cfg.Scope, names...)
		if err != nil { // tried again with the next session: nothing is consumed on a guess
			return nil, fmt.Errorf("read progress of scope %s: %w", g.h.cfg.Scope, err)
		}
		for _, p := range all {
			at := partition{p.Topic, p.Partition}
			if was, ok := found[at]; p.Next > 0 && fresh[at] && (!ok || p.Next < was.Next) {
				found[at] = p
			}
		}
	}
	for _, p := range sortedPartitions(found) {
		known = append(known, found[p])
	}
	return known, nil
}

func isLostOffsets(err error) bool {
	var lost *OffsetsLostError
	return errors.As(err, &lost)
}
