package watermillidem

import (
	"context"
	"sync"

	"github.com/idem-go/idem"
)

// settler gives messages to a processor. Watermill does not report assigned partitions to a
// handler, so that the settler concludes them from the messages.
type settler struct {
	p    *idem.Processor
	mu   sync.Mutex
	open map[partitionID]unsettled // an entry for each partition that had a message
}

type partitionID struct {
	topic     string
	partition int32
}

// unsettled is the message of a partition that ended last without being settled. The zero value
// means that there is none.
type unsettled struct {
	ctx    context.Context //nolint:containedctx // of the message; nil if there is none
	offset int64
}

// gone reports whether the message will not come again before the message at offset. The
// subscriber has then ended its context, and gives another message of the partition: the partition
// has left and returned, or a middleware has acknowledged the message.
func (u unsettled) gone(offset int64) bool {
	return u.ctx != nil && u.ctx.Err() != nil && u.offset != offset
}

func newSettler(p *idem.Processor) *settler {
	return &settler{p: p, open: make(map[partitionID]unsettled)}
}

// settle handles a message once. Without a position there is no progress to record.
func (s *settler) settle(
	ctx, msgCtx context.Context, m *idem.Message, known bool,
) (err error) {
	if !known {
		return s.p.Settle(ctx, []*idem.Message{m}, func(int) {})
	}
	settled := false
	s.begin(m)
	defer func() { s.end(msgCtx, m, settled) }() // also if an observer panics
	err = s.p.Handle(ctx, m)
	settled = err == nil
	return err
}

// begin precedes each call of the processor with a positioned message. The partition counts as
// assigned if its message is the first one, or if its unsettled message is gone.
func (s *settler) begin(m *idem.Message) {
	id := partitionID{m.Topic, m.Partition}
	s.mu.Lock()
	last, known := s.open[id]
	assigned := !known || last.gone(m.Offset)
	if assigned {
		s.open[id] = unsettled{}
	}
	s.mu.Unlock()
	if assigned {
		s.p.Assigned(m.Topic, m.Partition)
	}
}

// end follows the call of the processor. ctx is the context of the message.
func (s *settler) end(ctx context.Context, m *idem.Message, settled bool) {
	id := partitionID{m.Topic, m.Partition}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !settled:
		s.open[id] = unsettled{ctx: ctx, offset: m.Offset}
	case s.open[id].offset == m.Offset:
		s.open[id] = unsettled{}
	}
}
