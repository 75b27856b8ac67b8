package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/dedup"
)

// Register lets the stores compare what this consumer says about itself with what is on record, as [Consumer.Run] does at
// its start; see [idem.Processor.Register] for what is filled in and what is returned. Call it before the first Consume
// with the topics, and NoOffsets if the group has committed nothing on them.
func (h *GroupHandler) Register(ctx context.Context, r dedup.Registration) error {
	return h.proc.Register(ctx, r)
}

// registerWait bounds one try to register.
const registerWait = 15 * time.Second

// register lets the stores compare what this consumer says about itself with what is on record, before it joins its group
// (rules 7 and 14). A store or a broker that is down is waited for; a refusal ends Run.
func (c *Consumer) register(ctx context.Context, client sarama.Client) error {
	asked := slices.ContainsFunc(c.handler.proc.Stores(), func(store dedup.Store) bool {
		_, ok := store.(dedup.Registrar)
		return ok
	})
	if !asked {
		return nil
	}
	none, err := c.noOffsets(ctx, client)
	if err != nil {
		return err
	}
	// Source topics only, here and for the offsets: retry topics are the group's own, so that nobody else can have handled
	// their events under another scope, and offsets on them do not make a renamed group one that has consumed before.
	r := dedup.Registration{
		Group: c.cfg.Group, Topics: c.cfg.Topics, NoOffsets: none,
		AcceptNewIdentity: c.cfg.AcceptNewIdentity, NewScope: c.cfg.NewScope,
	}
	var back backoff
	var setup setupWatch
	for {
		err := c.tryRegister(ctx, r)
		switch {
		case err == nil:
			if back.tries > 0 {
				c.log.Info("store is there")
			}
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, dedup.ErrIdentityChanged):
			return fmt.Errorf("%w (events of the backlog would be new again: go back to the old recipe, or accept that with "+
				"Config.AcceptNewIdentity)", err)
		case errors.Is(err, dedup.ErrOtherScope):
			return fmt.Errorf("%w (this group has committed nothing, so that all their events would be new again: set "+
				"Config.Scope to a scope named here if the group continues its work, or Config.NewScope if it is another consumer)", err)
		case setup.over(err):
			return fmt.Errorf("register: %w", err)
		case !errors.Is(err, dedup.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("register: %w", err)
		}
		if back.tries == 0 {
			c.log.Warn("store unavailable at start, waiting for it", "error", c.cfg.errorText(err))
		}
		if err := setup.wait(ctx, &back); err != nil {
			return err
		}
	}
}

func (c *Consumer) tryRegister(ctx context.Context, r dedup.Registration) error {
	ctx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	return c.handler.proc.Register(ctx, r)
}

// noOffsets reports whether the group has committed nothing on its topics. If it may not know, the group counts as one that
// has: that is a warning (rule 46).
func (c *Consumer) noOffsets(ctx context.Context, client sarama.Client) (none bool, err error) {
	admin, err := sarama.NewClusterAdminFromClient(client) // closing it would close the client
	if err != nil {
		return false, err
	}
	var back backoff
	for {
		none, err := c.fetchOffsets(client, admin)
		switch {
		case err == nil:
			c.trouble.over()
			return none, nil
		case errors.Is(err, sarama.ErrGroupIDNotFound):
			return true, nil
		case isAny(err, sarama.ErrGroupAuthorizationFailed, sarama.ErrTopicAuthorizationFailed):
			c.log.Warn("not known whether the group has committed offsets, so a renamed group is not noticed: grant "+
				"Describe on the group and on its topics", "group", c.cfg.Group, "error", c.cfg.errorText(err))
			return false, nil
		}
		if err := c.patient(ctx, &back, err); err != nil {
			return false, err
		}
	}
}

func (c *Consumer) fetchOffsets(client sarama.Client, admin sarama.ClusterAdmin) (none bool, err error) {
	partitions := make(map[string][]int32, len(c.cfg.Topics))
	for _, topic := range c.cfg.Topics {
		if partitions[topic], err = client.Partitions(topic); err != nil {
			return false, fmt.Errorf("partitions of %s: %w", topic, err)
		}
	}
	offsets, err := admin.ListConsumerGroupOffsets(c.cfg.Group, partitions)
	if err != nil {
		return false, fmt.Errorf("offsets of group %s: %w", c.cfg.Group, err)
	}
	none = true
	for topic, blocks := range offsets.Blocks {
		for id, block := range blocks {
			if !errors.Is(block.Err, sarama.ErrNoError) {
				return false, fmt.Errorf("offsets of group %s, %s/%d: %w", c.cfg.Group, topic, id, block.Err)
			}
			none = none && block.Offset < 0
		}
	}
	return none, nil
}
