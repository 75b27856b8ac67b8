package ops

import (
	"context"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/deadletters"
)

// deferredSource lists the queues of deferred events.
type deferredSource struct {
	stores []deadletters.NamedStore
	cfg    Config
	kafka  *kafkaSource // nil without Kafka: the monitor's partitions are looked at
}

// The limits of a look.
const (
	maxQueues             = 200 // that are listed, and as many blocked ones behind them
	maxQueuesRead         = 2000
	maxDeferredPartitions = 1024 // of each scope
	maxHeadsShown         = 50
	minQueuesPage         = 20
	maxQueuesPage         = 200
)

func (s *deferredSource) list(ctx context.Context) (state deferredState, err error) {
	of, whole, err := s.partitions(ctx)
	if err != nil {
		return state, err
	}
	parts, cut := acrossScopes(s.cfg.Scopes, of)
	state, err = lookAtQueues(ctx, s.stores, parts)
	state.More = state.More || (cut || !whole) && len(state.Cannot) < len(s.stores)
	return state, err
}

// deferredLot is a partition of a store with queues that were not read yet.
type deferredLot struct {
	store string
	from  dedup.Deferrer
	part  dedup.DeferredPartition
	after string // the last queue that was read
}

// lookAtQueues reads a page of each partition in turn. So a partition with many queues does not hide
// the blocked key of another one.
func lookAtQueues(
	ctx context.Context, stores []deadletters.NamedStore, parts []dedup.DeferredPartition,
) (state deferredState, err error) {
	var lots []deferredLot
	for _, l := range stores {
		deferrer, ok := l.Store.(dedup.Deferrer)
		if !ok {
			state.Cannot = append(state.Cannot, l.Name)
			continue
		}
		for _, part := range parts {
			lots = append(lots, deferredLot{store: l.Name, from: deferrer, part: part})
		}
	}
	page := min(max(maxQueuesRead/max(len(lots), 1), minQueuesPage), maxQueuesPage)
	for read := 0; len(lots) > 0; {
		var unread []deferredLot
		for _, l := range lots {
			if read >= maxQueuesRead {
				state.More = true
				return state, nil
			}
			queues, err := l.from.Queues(ctx, l.part, l.after, page)
			if err != nil {
				return state, fmt.Errorf("%s: %w", l.store, err)
			}
			read += len(queues)
			if err := state.add(ctx, &l, queues); err != nil {
				return state, err
			}
			if len(queues) == page {
				l.after = queues[page-1].Name
				unread = append(unread, l)
			}
		}
		lots = unread
	}
	return state, nil
}

// add lists queues, or counts those for which the list has no room.
func (p *deferredState) add(ctx context.Context, l *deferredLot, queues []dedup.Queue) error {
	for _, q := range queues {
		one := deferredQueue{
			Store: l.store, Topic: l.part.Topic, Partition: l.part.Partition, Name: q.Name,
			Length: q.Length, Wait: q.Wait, Blocked: q.Blocked,
		}
		if n := len(p.Queues); n >= maxQueues && !q.Blocked || n >= 2*maxQueues {
			p.Unlisted.count(&one)
			continue
		}
		if len(p.Queues) < maxHeadsShown {
			first, err := l.from.First(ctx, l.part, q.Name, 1)
			if err != nil {
				return fmt.Errorf("%s: %w", l.store, err)
			}
			if len(first) > 0 {
				one.Head = &first[0]
				one.Head.Data = nil
			}
		}
		p.Queues = append(p.Queues, one)
	}
	return nil
}

// partitions returns the partitions of the sources: those of the brokers, or else those of this
// process. whole reports that there are no others, which only the brokers know.
func (s *deferredSource) partitions(
	ctx context.Context,
) (of []partitionID, whole bool, err error) {
	switch {
	case s.kafka != nil:
		client, _, err := s.kafka.get(ctx)
		if err != nil {
			return nil, false, err
		}
		for _, topic := range s.cfg.Consumer.Topics {
			partitions, err := client.Partitions(topic)
			if err != nil {
				return nil, false, fmt.Errorf("partitions of %s: %w", topic, err)
			}
			for _, id := range partitions {
				of = append(of, partitionID{"", topic, id})
			}
		}
	case s.cfg.Monitor != nil:
		here, _ := s.cfg.Monitor.parts.list(s.cfg.Consumer.Group)
		for i := range here {
			of = append(of, here[i].partitionID)
		}
	}
	return of, s.kafka != nil, nil
}

// acrossScopes returns the partitions for each scope. cut reports that some are left out.
func acrossScopes(
	scopes []string, of []partitionID,
) (all []dedup.DeferredPartition, cut bool) {
	if cut = len(of) > maxDeferredPartitions; cut {
		of = of[:maxDeferredPartitions]
	}
	for _, scope := range scopes {
		for _, p := range of {
			all = append(
				all, dedup.DeferredPartition{Scope: scope, Topic: p.Topic, Partition: p.Partition},
			)
		}
	}
	return all, cut
}
