package idemtest

import (
	"context"
	"errors"
	"sync"

	"github.com/idem-go/idem"
)

// member runs the deferred events of the partitions of one member of the group.
type member struct {
	c       *Consumer
	ctx     context.Context //nolint:containedctx // of the goroutines, ended by the end of the member
	running sync.WaitGroup
	runs    map[place]bool
}

// assign assigns a partition to the member.
func (m *member) assign(at place) {
	if m.runs[at] {
		return
	}
	m.runs[at] = true
	p := m.c.p
	p.Assigned(at.topic, at.partition)
	if !p.RunsDeferred() {
		return
	}
	m.running.Go(func() {
		err := p.RunDeferred(m.ctx, at.topic, at.partition)
		if err != nil && !errors.Is(err, idem.ErrAbandoned) {
			m.c.t.Errorf("idemtest: deferred events of %s/%d: %v", at.topic, at.partition, err)
		}
	})
}
