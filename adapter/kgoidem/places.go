package kgoidem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// places decides where partitions begin. committed has their committed offsets, negative without
// one. With FailOnGap the error holds a *runner.GapError for each gap (K-17, K-18, K-28).
func (r *Runner) places(ctx context.Context, committed map[partition]int64) (map[partition]place, error) {
	if len(committed) == 0 {
		return nil, nil
	}
	logs, err := r.spans(ctx, slices.Collect(maps.Keys(committed)))
	if err != nil {
		return nil, err
	}
	places := make(map[partition]place, len(committed))
	fresh := make(map[partition]bool)
	var gaps []error
	for _, p := range sortedPartitions(committed) {
		next, log := committed[p], logs[p]
		retry := runner.IsRetry(p.topic, r.cfg.Group)
		switch {
		case next < 0:
			fresh[p] = !retry
			places[p] = place{offset: beginOf(log, r.cfg.Start, retry)}
		case next >= log.oldest && next <= log.newest:
			places[p] = place{offset: next, committed: true}
		default:
			gap := &runner.GapError{Topic: p.topic, Partition: p.id, Committed: next,
				Oldest: log.oldest, Newest: log.newest}
			policy := policyOf(r.cfg.OnGap, retry)
			r.reportGap(gap, policy)
			if policy == runner.FailOnGap {
				gaps = append(gaps, gap)
				continue
			}
			to := log.oldest
			if policy == runner.LatestOnGap {
				to = log.newest
			}
			places[p] = place{offset: to, committed: true, moved: true}
		}
	}
	if len(gaps) > 0 {
		return nil, errors.Join(gaps...)
	}
	return places, r.checkLost(ctx, places, fresh, logs)
}

// beginOf returns where a partition without a committed offset begins. The group itself wrote the
// copies in its retry topics, and skips none.
func beginOf(log span, start runner.StartPosition, retry bool) int64 {
	if start == runner.Newest && !retry {
		return log.visible
	}
	return log.oldest
}

// policyOf returns the configured policy, but skips no copy in a retry topic. A gap there means that
// some copies are lost. All other copies must run, and the store knows which have run.
func policyOf(policy runner.GapPolicy, retry bool) runner.GapPolicy {
	if policy == runner.LatestOnGap && retry {
		return runner.EarliestOnGap
	}
	return policy
}

func (r *Runner) reportGap(gap *runner.GapError, policy runner.GapPolicy) {
	r.log.Error("committed offset is no longer in the log",
		"topic", gap.Topic, "partition", gap.Partition, "committed", gap.Committed,
		"oldest", gap.Oldest, "newest", gap.Newest, "missing", gap.Missing(),
		"policy", policy.String())
	for _, o := range r.obs.Gap {
		o.ObserveGap(context.Background(), observe.GapEvent{
			Group: r.cfg.Group, Topic: gap.Topic, Partition: gap.Partition,
			Committed: gap.Committed, Oldest: gap.Oldest, Newest: gap.Newest,
			Policy: policy.String(),
		})
	}
}

// checkLost acts on fresh partitions that, according to a store, the scope has consumed. Retry
// topics are not checked: the group reads them from the oldest record in any case.
func (r *Runner) checkLost(
	ctx context.Context, places map[partition]place, fresh map[partition]bool, logs map[partition]span,
) error {
	policy := r.cfg.OnLostOffsets
	if policy == runner.RefuseLost && r.cfg.Scope != r.cfg.Group {
		policy = runner.StartLost
	}
	if policy == runner.StartLost {
		return nil
	}
	found, err := r.recorded(ctx, fresh)
	if err != nil {
		return err
	}
	var known []dedup.Progress
	for _, p := range sortedPartitions(found) {
		if found[p].Next > logs[p].newest {
			r.log.Warn("the log ends before the recorded progress, the topic was made anew: "+
				"beginning at Config.Start", "topic", p.topic, "partition", p.id,
				"known", found[p].Next, "end", logs[p].newest, "start", r.cfg.Start.String())
			continue
		}
		known = append(known, found[p])
	}
	if len(known) == 0 {
		return nil
	}
	r.log.Error("committed offsets are gone, but the store has the progress on record",
		"scope", r.cfg.Scope, "partitions", len(known), "policy", policy.String())
	if policy == runner.RefuseLost {
		return &runner.OffsetsLostError{Scope: r.cfg.Scope, Known: known}
	}
	for _, k := range known {
		p := partition{k.Topic, k.Partition}
		places[p] = place{offset: max(k.Next, logs[p].oldest), committed: true, moved: true}
	}
	return nil
}

// recorded asks the stores for the progress of fresh partitions. A Next of zero is no position.
func (r *Runner) recorded(
	ctx context.Context, fresh map[partition]bool,
) (map[partition]dedup.Progress, error) {
	var topics []string
	for p, source := range fresh {
		if source {
			topics = append(topics, p.topic)
		}
	}
	if len(topics) == 0 {
		return nil, nil
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	found := make(map[partition]dedup.Progress)
	for _, store := range r.proc.Stores() {
		recorder, ok := store.(dedup.ProgressRecorder)
		if !ok {
			continue
		}
		all, err := recorder.Progress(ctx, r.cfg.Scope, topics...)
		if err != nil { // repeated with the next session: no partition begins at a guess
			return nil, fmt.Errorf("read progress of scope %s: %w", r.cfg.Scope, err)
		}
		for _, p := range all {
			at := partition{p.Topic, p.Partition}
			if was, ok := found[at]; p.Next > 0 && fresh[at] && (!ok || p.Next < was.Next) {
				found[at] = p
			}
		}
	}
	return found, nil
}

func sortedPartitions[V any](of map[partition]V) []partition {
	return slices.SortedFunc(maps.Keys(of), func(a, b partition) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.id, b.id))
	})
}
