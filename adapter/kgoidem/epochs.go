package kgoidem

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// noEpoch is the epoch of a committed offset that franz-go does not check.
const noEpoch = -1

// epochs has the epochs of the leaders that wrote the fetched records of a partition. The epoch of
// the last record is committed with the offset. So a later membership finds that the log was cut
// below the offset, also when the log has grown beyond it since (K-32). Safe for concurrent use.
type epochs struct {
	mu   sync.Mutex
	runs []epochRun // in the order of offsets; a log has few
}

// epochRun are fetched records of one epoch. Records between them are of that epoch too.
type epochRun struct {
	first, last int64
	epoch       int32
}

// note adds a record or a marker behind those before.
func (e *epochs) note(offset int64, epoch int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.runs); n > 0 && e.runs[n-1].epoch == epoch {
		e.runs[n-1].last = offset
		return
	}
	e.runs = append(e.runs, epochRun{first: offset, last: offset, epoch: epoch})
}

// below returns the epoch of the record just before an offset, or noEpoch if that record was not
// fetched. The epoch of an older record could have ended before the offset, as after a cut.
func (e *epochs) below(next int64) int32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := len(e.runs) - 1; i >= 0; i-- {
		if r := e.runs[i]; r.first < next && next <= r.last+1 {
			return r.epoch
		}
	}
	return noEpoch
}

// stamp is the metadata of a committed offset whose epoch is that of the record before. Other
// clients may commit an epoch that does not belong to the offset: sarama keeps the one that it has
// read at the start of a session. Such an epoch looks like a cut of the log.
func stamp(p partition, next int64, epoch int32) string {
	return fmt.Sprintf("idem %s/%d@%d epoch %d", p.Topic, p.Partition, next, epoch)
}

// stamped notes the stamps of the offsets that franz-go has fetched, which [member.begin] needs.
// franz-go calls both one after the other.
func (m *member) stamped(_ context.Context, _ *kgo.Client, answer *kmsg.OffsetFetchResponse) error {
	stamps := make(map[string]bool)
	for _, g := range answer.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if p.Metadata != nil {
					stamps[*p.Metadata] = true
				}
			}
		}
	}
	m.stamps = stamps
	return nil
}

// place returns where franz-go begins a partition. franz-go looks for a cut of the log below the
// committed offset if the stamp vouches for its epoch.
func (m *member) place(p partition, fetched kgo.Offset, at int64) kgo.Offset {
	committed := fetched.EpochOffset()
	if committed.Offset != at {
		return kgo.NewOffset().At(at).WithEpoch(noEpoch)
	}
	if !m.stamps[stamp(p, at, committed.Epoch)] {
		return fetched.WithEpoch(noEpoch)
	}
	return fetched
}
