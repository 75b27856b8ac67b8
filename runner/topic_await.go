package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/setupwait"
)

// await returns the topics when all exist and this client has all of ops on each. After wait, the
// error is missing, which names the topics and which complete has completed, or matches
// ErrUnauthorized. If wait is longer than its default, the error is logged within the default.
func (s *TopicSetup) await(
	ctx context.Context, names []string, ops Operations, wait time.Duration,
	complete func(missing *TopicError),
) (topics []TopicInfo, missing *TopicError, err error) {
	if len(names) == 0 {
		return nil, nil, nil
	}
	began, told := time.Now(), false
	for {
		topics, err := s.Admin.Topics(ctx, names)
		if err != nil {
			return nil, nil, err
		}
		found, err := accessOf(topics, ops)
		switch {
		case err != nil:
			return nil, nil, err
		case len(found.missing)+len(found.denied) == 0:
			return topics, nil, nil
		// a denied topic may be missing too, and is reported next
		case len(found.missing) > 0:
			missing = &TopicError{Topics: found.missing}
			complete(missing)
			err = missing
		default:
			missing, err = nil, s.Commands.DeniedError(found.denied, ops)
		}
		waited := time.Since(began)
		pause, again := setupwait.Pause(waited, wait)
		if !again {
			return nil, missing, err
		}
		if waited+pause > setupwait.Default && !told {
			told = true
			s.Config.Logger.Warn("topics or rights are missing, waiting for them", "error", s.Config.Text(err))
		}
		if err := Pause(ctx, pause); err != nil {
			return nil, nil, err
		}
	}
}

// CheckWritable judges what a broker has answered about topics. An error that matches [idem.ErrNoTopic] names the topics that
// are missing, or that this client may not write to, and the commands that mend it.
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
