package runner

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/idem-go/idem/observe"
)

// TopicWatch keeps the subscription up to date while topics come and go. Create a TopicWatch with
// [NewTopicWatch]. Safe for concurrent use.
type TopicWatch struct {
	list      *TopicList
	admin     Admin
	group     string
	creates   bool // a start creates missing topics
	commands  Commands
	log       *slog.Logger
	observers []observe.TopicObserver
}

// NewTopicWatch returns the watch over the topics of a list. It needs the defaults of cfg.
func NewTopicWatch(cfg Config, admin Admin, commands Commands, list *TopicList) *TopicWatch {
	own, _ := sortObservers(cfg.Observers)
	return &TopicWatch{
		list: list, admin: admin, group: cfg.Group, creates: cfg.CreateDeadLetterTopics != nil, commands: commands, log: cfg.Logger,
		observers: own.Topic,
	}
}

// Look finds the topics that can be read, and reports changes. The result is true if the
// subscription should be renewed.
func (w *TopicWatch) Look(ctx context.Context) (renew bool, err error) {
	topics, err := w.admin.Topics(ctx, w.list.all())
	if err != nil {
		return false, err
	}
	found, err := accessOf(topics, OpRead)
	if err != nil {
		return false, err
	}
	change := w.list.set(found)
	w.report(change, found)
	return len(change.back)+len(change.opened) > 0 || slices.ContainsFunc(found.denied, func(topic string) bool {
		return slices.Contains(change.gone, topic) || slices.Contains(change.denied, topic)
	}), nil
}

func (w *TopicWatch) report(change topicChanges, found access) {
	grant := func(topics ...string) string {
		return w.commands.GrantTopics(topics, OpRead)
	}
	for _, topic := range w.list.Missing() {
		switch {
		case !change.again && !slices.Contains(change.gone, topic):
		case slices.Contains(found.denied, topic):
			w.log.Error("topic must not be read any longer, continuing with the others",
				"topic", topic, "grant", grant(topic))
		default:
			w.log.Error("topic does not exist any longer, continuing with the others",
				"topic", topic)
		}
	}
	for _, topic := range change.gone {
		w.observe(topic, true)
	}
	for _, topic := range change.back {
		w.log.Info("topic can be read again", "topic", topic)
		w.observe(topic, false)
	}
	if len(change.opened) > 0 {
		w.log.Info("topics can be read now", "topics", change.opened)
	}
	if len(change.lacking) > 0 {
		advice := "set CreateDeadLetterTopics"
		if w.creates { // the start could not: a right was missing, or the topic was just deleted
			advice = "start again"
		}
		w.log.Warn("dead letters cannot be replayed until their topics exist: create them, or "+
			advice, "topics", change.lacking, "create", w.commands.CreateAll(change.lacking, nil,
			RetrySetting))
	}
	if len(change.denied) > 0 { // only replays need them (rule 46)
		w.log.Warn("retry topics must not be read: dead letters cannot be replayed, and copies "+
			"in these topics wait",
			"topics", change.denied, "grant", grant(change.denied...))
	}
}

func (w *TopicWatch) observe(topic string, missing bool) {
	for _, o := range w.observers {
		o.ObserveTopic(context.Background(), observe.TopicEvent{Group: w.group, Topic: topic,
			Missing: missing})
	}
}

// end reports to the observers that no topic is missing for this runner, which has ended. Otherwise
// their number of missing topics would never fall again.
func (w *TopicWatch) end() {
	for _, topic := range w.list.Missing() {
		w.observe(topic, false)
	}
}

// Subscription returns the topics to consume. The brokers are asked again only after an error
// (troubled) and while a topic is missing. Otherwise the group would wait for the answer at each
// rebalance.
func (w *TopicWatch) Subscription(ctx context.Context, troubled bool) ([]string, error) {
	if troubled || !w.list.complete() {
		if _, err := w.Look(ctx); err != nil {
			return nil, err
		}
	}
	if topics := w.list.Now(); len(topics) > 0 {
		return topics, nil
	}
	if denied := w.list.deniedNow(); len(denied) > 0 {
		return nil, w.commands.DeniedError(denied, OpRead)
	}
	return nil, &TopicError{Topics: w.list.Missing()}
}

// ErrTopicBack ends a session because the subscription changes.
var ErrTopicBack = errors.New("the topics that can be read have changed")

// suspectPause is the shortest time between two looks, also after a broker's refusal.
const suspectPause = 5 * time.Second

// Run looks for missing topics, also for those that only replays need, until ctx ends. Run calls
// renew, with [ErrTopicBack], when one can be read, or when a topic of the subscription must not be
// read any longer.
func (w *TopicWatch) Run(ctx context.Context, renew func(cause error)) {
	every := time.NewTicker(w.list.Every)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.list.suspected:
		case <-every.C:
			if w.list.complete() {
				continue
			}
		}
		if changed, err := w.Look(ctx); err == nil && changed {
			renew(ErrTopicBack)
		}
		if Pause(ctx, min(suspectPause, w.list.Every)) != nil {
			return
		}
	}
}

// suspectDeleted looks for topics of the subscription that were deleted, until ctx ends. Clients
// that only wait for a deleted topic report no error. A second look follows, because one broker may
// not know the topic yet.
func (w *TopicWatch) suspectDeleted(ctx context.Context) {
	for Pause(ctx, w.list.Every) == nil {
		topics, err := w.admin.Topics(ctx, w.list.Now())
		if err == nil && slices.ContainsFunc(topics, TopicInfo.deleted) {
			w.list.Suspect()
		}
	}
}
