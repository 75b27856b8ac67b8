package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/consumer/internal/topicadmin"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/runner"
)

// topicSetup makes sure, at the start of a consumer, that all topics exist and may be used.
type topicSetup struct {
	cfg         Config
	log         *slog.Logger
	delays      []time.Duration // of retry topics
	deadLetters bool            // whether dead letters go to this cluster
	topics      *topicList
	client      sarama.Client
	admin       sarama.ClusterAdmin
	creator     topicadmin.Creator
}

func newTopicSetup(
	cfg Config, delays []time.Duration, deadLetters bool, list *topicList, client sarama.Client,
) (*topicSetup, error) {
	admin, err := sarama.NewClusterAdminFromClient(client) // closing it would close the client
	if err != nil {
		return nil, fmt.Errorf("look for topics: %w", err)
	}
	return &topicSetup{
		cfg: cfg, log: cfg.Logger, delays: delays, deadLetters: deadLetters, topics: list,
		client: client, admin: admin,
		creator: topicadmin.Creator{
			Client: client, Admin: admin, Spec: (*topicadmin.Spec)(cfg.CreateDeadLetterTopics),
			Commands: cfg.commands(), Log: cfg.Logger,
		},
	}, nil
}

// ensure checks the sources and the group, then creates and checks the retry and dead-letter
// topics. Errors that are not fatal deserve another try.
func (s *topicSetup) ensure(ctx context.Context) error {
	sources, missing, err := s.await(ctx, s.cfg.Topics, topicadmin.OpRead)
	if missing != nil {
		missing.Fix = s.cfg.commands().CreateAll(missing.Topics, nil)
	}
	if err != nil {
		return err
	}
	if err := topicadmin.CheckGroup(s.client, s.cfg.Group); err != nil {
		return err
	}
	if err := s.findFormerDelays(); err != nil {
		return err
	}
	if err := s.prepareRetries(ctx, sources); err != nil {
		return err
	}
	if !s.deadLetters { // the user's Producer may write to another cluster
		return nil
	}
	return s.prepareDeadLetters(ctx, sources)
}

// await waits for topics. The TopicError, if not nil, is the error too.
func (s *topicSetup) await(
	ctx context.Context, names []string, ops ...sarama.AclOperation,
) (topics []*sarama.TopicMetadata, missing *TopicError, err error) {
	topics, err = topicadmin.Await(ctx, s.client, s.cfg.commands(), names, ops...)
	var gone *topicadmin.MissingError
	if errors.As(err, &gone) {
		missing = &TopicError{Topics: gone.Topics}
		return nil, missing, missing
	}
	return topics, nil, err
}

// prepareDeadLetters creates the missing dead-letter topics, if configured, and waits for all.
func (s *topicSetup) prepareDeadLetters(
	ctx context.Context, sources []*sarama.TopicMetadata,
) error {
	all := make(map[string]*sarama.TopicMetadata, len(sources))
	for _, source := range sources {
		all[s.cfg.DeadLetterTopic(source.Name)] = source
	}
	create, err := s.creator.ToCreate(all)
	if err != nil {
		return err
	}
	for _, name := range create {
		if err := s.creator.DeadLetters(name, all[name]); err != nil {
			return err
		}
	}
	_, missing, err := s.await(ctx, slices.Sorted(maps.Keys(all)), topicadmin.OpWrite)
	if missing != nil {
		missing.DeadLetters = true
		missing.Fix = s.cfg.commands().CreateAll(missing.Topics, all, topicadmin.DeadLetterSetting)
	}
	return err
}

// prepareRetries creates the missing retry topics, if configured, and waits for those with a delay.
// A copy that cannot be written would hold up a partition.
func (s *topicSetup) prepareRetries(ctx context.Context, sources []*sarama.TopicMetadata) error {
	all, needed := make(map[string]*sarama.TopicMetadata), make(map[string]time.Duration)
	for _, source := range sources {
		all[deadletter.RetryTopic(source.Name, s.cfg.Group, 0)] = source
		for _, d := range s.delays {
			name := deadletter.RetryTopic(source.Name, s.cfg.Group, d)
			all[name], needed[name] = source, d
		}
	}
	created, err := s.createRetries(all, needed)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(needed))
	_, missing, err := s.await(ctx, names, topicadmin.OpRead, topicadmin.OpWrite)
	if missing != nil {
		missing.Retries = true
		missing.Fix = s.cfg.commands().CreateAll(missing.Topics, all, topicadmin.RetrySetting)
	}
	if err != nil {
		return err
	}
	// Topics for replays that were just created are subscribed to at once. The next look finds
	// those that are still missing, or that this client may create and not describe.
	_, missing, err = s.await(ctx, created)
	if err != nil && missing == nil && !errors.Is(err, ErrUnauthorized) {
		return err
	}
	retention := topicadmin.Retention{
		Admin: s.admin, Commands: s.cfg.commands(), Log: s.log, ErrorText: s.cfg.errorText,
	}
	for _, name := range names {
		retention.Check(name, needed[name], slices.Contains(created, name))
	}
	return nil
}

// createRetries creates the missing topics and returns the names of those that exist then. Only
// replays need a topic without a delay, so a missing right to create one is a warning (rule 46).
func (s *topicSetup) createRetries(
	all map[string]*sarama.TopicMetadata, needed map[string]time.Duration,
) (created []string, err error) {
	create, err := s.creator.ToCreate(all)
	if err != nil {
		return nil, err
	}
	for _, name := range create {
		err := s.creator.Retries(name, all[name])
		if _, must := needed[name]; !must && errors.Is(err, ErrUnauthorized) {
			s.log.Warn("topic for replayed dead letters cannot be created",
				"topic", name, "error", s.cfg.errorText(err))
			continue
		}
		if err != nil {
			return nil, err
		}
		created = append(created, name)
	}
	return created, nil
}

// findFormerDelays adds retry topics of delays that no handler declares any longer. An earlier
// deployment may have left copies there, and only this group reads them.
func (s *topicSetup) findFormerDelays() error {
	all, err := topicadmin.Ask(s.client, nil)
	if err != nil {
		return err
	}
	var former []string
	for _, t := range all {
		source, ok := runner.SourceOf(t.Name, s.cfg.Group)
		known := ok && slices.Contains(s.cfg.Topics, source)
		if known && errors.Is(t.Err, sarama.ErrNoError) && s.topics.add(t.Name) {
			former = append(former, t.Name)
		}
	}
	if len(former) > 0 {
		slices.Sort(former)
		s.log.Warn("retry topics of delays that no handler declares are read "+
			"for their remaining copies: "+
			"delete the topics when they are empty", "topics", former)
	}
	return nil
}
