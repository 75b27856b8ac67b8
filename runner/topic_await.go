package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/setupwait"
)

// awaited has the topics that a start waits for.
type awaited struct {
	names []string
	ops   Operations // that this client must have on each topic
	wait  time.Duration
	// complete completes the error about missing topics.
	complete func(missing *TopicError)
	// create creates missing topics, before each pause. If nil, no topic is created.
	create func(ctx context.Context, missing []string) error
}

// await returns the topics when all exist and this client has all rights on each. At the end of the
// wait, the error is missing, which names the topics, or matches ErrUnauthorized. If the wait is
// longer than its default, the error is logged within the default.
func (s *TopicSetup) await(
	ctx context.Context, a awaited,
) (topics []TopicInfo, missing *TopicError, err error) {
	if len(a.names) == 0 {
		return nil, nil, nil
	}
	began := time.Now()
	away := setupwait.Problem{
		First: "topics or rights are missing, waiting for them",
		Still: "topics or rights are still missing, waiting for them",
		Since: began,
	}
	for {
		topics, err := s.Admin.Topics(ctx, a.names)
		if err != nil {
			return nil, nil, err
		}
		found, err := accessOf(topics, a.ops)
		switch {
		case err != nil:
			return nil, nil, err
		case len(found.missing)+len(found.denied) == 0:
			if lasted, logged := away.Over(); logged {
				s.Config.Logger.Info("topics and rights are there", "after", lasted)
			}
			return topics, nil, nil
		// a denied topic may be missing too, and is reported next
		case len(found.missing) > 0:
			missing = &TopicError{Topics: found.missing}
			a.complete(missing)
			err = missing
		default:
			missing, err = nil, s.Commands.DeniedError(found.denied, a.ops)
		}
		waited := time.Since(began)
		pause, again := setupwait.Pause(waited, a.wait)
		if !again {
			return nil, missing, err
		}
		if waited+pause > setupwait.Default {
			away.Log(ctx, s.Config.Logger, s.Config.Text(err))
		}
		if a.create != nil && len(found.missing) > 0 {
			if err := a.create(ctx, found.missing); err != nil {
				return nil, nil, err
			}
		}
		if err := Pause(ctx, pause); err != nil {
			return nil, nil, err
		}
	}
}

// CheckWritable judges the answer of a broker about topics. An error that matches [idem.ErrNoTopic]
// names the topics that are missing, or that this client may not write to. It also names the
// commands that create the topics or grant the right.
func (c Commands) CheckWritable(topics []TopicInfo) error {
	found, err := accessOf(topics, OpWrite)
	switch {
	case err != nil:
		return err
	case len(found.missing) > 0:
		err = &TopicError{Topics: found.missing, Fix: c.CreateAll(found.missing, nil)}
	case len(found.denied) > 0:
		err = c.DeniedError(found.denied, OpWrite)
	default:
		return nil
	}
	return fmt.Errorf("%w: %w", idem.ErrNoTopic, err)
}
