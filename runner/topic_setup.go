package runner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/internal/setupwait"
)

// TopicSetup makes sure, at the start of a runner, that all topics exist and may be used. All
// fields are required.
type TopicSetup struct {
	Config   Config // with defaults
	Admin    Admin
	Commands Commands
	Classify Classify
	// Delays are the delays of retry topics, see [idem.Processor.RetryDelays].
	Delays []time.Duration
	// OwnProducer is set if dead letters go to this cluster. Then their topics are looked for, and
	// created if configured. A user's Producer may write to another cluster.
	OwnProducer bool
	Topics      *TopicList
}

// Ensure checks the sources and the group, then creates and checks the retry and dead-letter
// topics. Errors that are not fatal deserve another try.
func (s *TopicSetup) Ensure(ctx context.Context) error {
	sources, _, err := s.await(ctx, awaited{
		names: s.Config.Topics, ops: OpRead, wait: s.Config.SetupWait,
		complete: func(missing *TopicError) {
			missing.Fix = s.Commands.CreateAll(missing.Topics, nil)
		},
	})
	if err != nil {
		return err
	}
	if err := s.Admin.CheckGroup(ctx, s.Config.Group); err != nil {
		return err
	}
	if err := s.findFormerDelays(ctx); err != nil {
		return err
	}
	if err := s.prepareRetries(ctx, sources); err != nil {
		return err
	}
	if !s.OwnProducer {
		return nil
	}
	return s.prepareDeadLetters(ctx, sources)
}

func (s *TopicSetup) creator() *topicCreator {
	return &topicCreator{
		admin: s.Admin, classify: s.Classify, spec: s.Config.CreateDeadLetterTopics,
		commands: s.Commands, log: s.Config.Logger, made: make(map[string]bool),
	}
}

// prepareDeadLetters creates the missing dead-letter topics, if configured, and waits for all.
func (s *TopicSetup) prepareDeadLetters(
	ctx context.Context, sources []TopicInfo,
) error {
	all := make(map[string]*TopicInfo, len(sources))
	for _, source := range sources {
		all[s.Config.DeadLetterTopic(source.Name)] = &source
	}
	creator := s.creator()
	create := func(ctx context.Context, names []string) error {
		for _, name := range names {
			if err := creator.deadLetters(ctx, name, all[name]); err != nil {
				return err
			}
		}
		return nil
	}
	names, err := creator.toCreate(ctx, all)
	if err != nil {
		return err
	}
	if err := create(ctx, names); err != nil {
		return err
	}
	_, _, err = s.await(ctx, awaited{
		names: slices.Sorted(maps.Keys(all)), ops: OpWrite, wait: s.Config.SetupWait,
		complete: func(missing *TopicError) {
			missing.DeadLetters, missing.created = true, creator.spec != nil
			missing.Fix = s.Commands.CreateAll(missing.Topics, all, DeadLetterSetting)
		},
		create: creator.when(create),
	})
	return err
}

// prepareRetries creates the missing retry topics, if configured, and waits for those with a delay.
// A copy that cannot be written would hold up a partition.
func (s *TopicSetup) prepareRetries(ctx context.Context, sources []TopicInfo) error {
	all, needed := make(map[string]*TopicInfo), make(map[string]time.Duration)
	for _, source := range sources {
		all[deadletter.RetryTopic(source.Name, s.Config.Group, 0)] = &source
		for _, d := range s.Delays {
			name := deadletter.RetryTopic(source.Name, s.Config.Group, d)
			all[name], needed[name] = &source, d
		}
	}
	creator, created := s.creator(), []string(nil)
	create := func(ctx context.Context, names []string) error {
		now, err := s.createRetries(ctx, creator, names, all, needed)
		created = slices.Compact(slices.Sorted(slices.Values(append(created, now...))))
		return err
	}
	toCreate, err := creator.toCreate(ctx, all)
	if err != nil {
		return err
	}
	if err := create(ctx, toCreate); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(needed))
	_, _, err = s.await(ctx, awaited{
		names: names, ops: OpRead | OpWrite, wait: s.Config.SetupWait,
		complete: func(missing *TopicError) {
			missing.Retries, missing.created = true, creator.spec != nil
			missing.Fix = s.Commands.CreateAll(missing.Topics, all, RetrySetting)
		},
		create: creator.when(create),
	})
	if err != nil {
		return err
	}
	// Topics for replays that were just created are subscribed to at once. The next look finds
	// those that are still missing, or that this client may create and not describe.
	_, missing, err := s.await(ctx, awaited{
		names: created, wait: setupwait.Default, complete: func(*TopicError) {},
	})
	if err != nil && missing == nil && !errors.Is(err, ErrUnauthorized) {
		return err
	}
	retention := topicRetention{
		admin: s.Admin, commands: s.Commands, log: s.Config.Logger, text: s.Config.Text,
	}
	for _, name := range names {
		retention.check(ctx, name, needed[name], slices.Contains(created, name))
	}
	return nil
}

// createRetries creates the topics and returns the names of those that exist then. Only replays
// need a topic without a delay, so a missing right to create one is a warning (rule 46).
func (s *TopicSetup) createRetries(
	ctx context.Context, creator *topicCreator, names []string,
	all map[string]*TopicInfo, needed map[string]time.Duration,
) (created []string, err error) {
	for _, name := range names {
		err := creator.retries(ctx, name, all[name])
		if _, must := needed[name]; !must && errors.Is(err, ErrUnauthorized) {
			s.Config.Logger.Warn("topic for replayed dead letters cannot be created",
				"topic", name, "error", s.Config.Text(err))
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
func (s *TopicSetup) findFormerDelays(ctx context.Context) error {
	all, err := s.Admin.Topics(ctx, nil)
	if err != nil {
		return err
	}
	var former []string
	for _, t := range all {
		source, ok := SourceOf(t.Name, s.Config.Group)
		known := ok && slices.Contains(s.Config.Topics, source)
		if known && t.Exists && len(t.Partitions) > 0 && s.Topics.add(t.Name) {
			former = append(former, t.Name)
		}
	}
	if len(former) > 0 {
		slices.Sort(former)
		s.Config.Logger.Warn("retry topics of delays that no handler declares are read "+
			"for their remaining copies: "+
			"delete the topics when they are empty", "topics", former)
	}
	return nil
}
