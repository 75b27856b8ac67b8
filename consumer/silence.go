package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// errSilent says why a membership ended.
var errSilent = errors.New("a partition went silent")

// silence watches for partitions of which no records come although there are some (K-15): a fetching that has died inside
// the client while heartbeats and all other partitions go on. The end of the log is asked for on another way, and compared
// with what the fetching has seen of it last, which goes on with every answer that has records, be they visible or not.
// So records of aborted transactions and of Kafka itself are no silence, nor are those of open ones: what is asked for is
// the end of what may be read.
type silence struct {
	c      *Consumer
	client sarama.Client
	behind map[*claimed]lag
}

// lag is a claim that lags behind its log and does not move.
type lag struct {
	since time.Time
	seen  int64 // the end of the log as the fetching knows it
}

// awaitSilence looks for silent partitions until ctx ends, and lets the group be joined anew when there is one.
func (c *Consumer) awaitSilence(ctx context.Context, client sarama.Client) {
	if c.cfg.SilenceTimeout < 0 {
		return
	}
	s := &silence{c: c, client: client, behind: make(map[*claimed]lag)}
	for pause(ctx, max(c.cfg.SilenceTimeout/4, 50*time.Millisecond)) == nil {
		for claim, q := range s.look() {
			e := idem.SilenceEvent{Group: c.cfg.Group, Topic: claim.topic, Partition: claim.id, Seen: q.seen, For: time.Since(q.since)}
			c.log.Error("no records of a partition arrive although there are some, joining the group anew",
				"topic", e.Topic, "partition", e.Partition, "seen", e.Seen, "for", e.For.Round(time.Second))
			for _, o := range c.handler.obs.silence {
				o.ObserveSilence(ctx, e)
			}
			c.handler.endSession(fmt.Errorf("%w: %s/%d", errSilent, claim.topic, claim.id))
			s.behind = make(map[*claimed]lag)
		}
	}
}

// look returns the claims that have been silent for too long.
func (s *silence) look() map[*claimed]lag {
	ends := s.ends()
	still, silent := make(map[*claimed]lag), make(map[*claimed]lag)
	for c, end := range ends {
		seen := c.claim.HighWaterMarkOffset()
		if end <= seen {
			continue
		}
		q, ok := s.behind[c]
		if !ok || q.seen != seen {
			q = lag{since: time.Now(), seen: seen}
		}
		still[c] = q
		if time.Since(q.since) >= s.c.cfg.SilenceTimeout {
			silent[c] = q
		}
	}
	s.behind = still
	return silent
}

// ends asks each leader once for the ends of all partitions that we fetch from it and do not pause. Of a broker that does
// not answer nothing is said: that is told elsewhere, and fetching from it is tried again by sarama.
func (s *silence) ends() map[*claimed]int64 {
	requests, claims := make(map[*sarama.Broker]*sarama.OffsetRequest), make(map[partition]*claimed)
	for _, c := range s.c.handler.claims() {
		f, ok := c.claim.(flow)
		if !ok || f.IsPaused() || c.ctx.Err() != nil {
			continue
		}
		leader, err := s.client.Leader(c.topic, c.id)
		if err != nil {
			continue
		}
		r := requests[leader]
		if r == nil {
			r = sarama.NewOffsetRequest(s.c.sarama.Version)
			r.IsolationLevel = s.c.sarama.Consumer.IsolationLevel
			requests[leader] = r
		}
		r.AddBlock(c.topic, c.id, sarama.OffsetNewest, 1)
		claims[c.partition] = c
	}
	ends := make(map[*claimed]int64)
	for leader, r := range requests {
		answer, err := leader.GetAvailableOffsets(r)
		if err != nil {
			continue
		}
		for topic, blocks := range answer.Blocks {
			for id, b := range blocks {
				if c := claims[partition{topic, id}]; c != nil && errors.Is(b.Err, sarama.ErrNoError) {
					ends[c] = b.Offset
				}
			}
		}
	}
	return ends
}
