package consumer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/consumer/internal/topicadmin"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// topicWatch keeps the subscription true while topics come and go.
type topicWatch struct {
	list      *topicList
	client    sarama.Client
	group     string
	commands  topicadmin.Commands
	log       *slog.Logger
	observers []observe.TopicObserver
}

// look finds the topics that can be read, and reports changes. The result is true if the
// subscription should be renewed.
func (w *topicWatch) look() (renew bool, err error) {
	topics, err := topicadmin.Ask(w.client, w.list.all())
	if err != nil {
		return false, err
	}
	found, err := topicadmin.AccessOf(topics, topicadmin.OpRead)
	if err != nil {
		return false, err
	}
	change := w.list.set(found)
	w.report(change, found)
	return len(change.back) > 0 || slices.ContainsFunc(found.Denied, func(topic string) bool {
		return slices.Contains(change.gone, topic) || slices.Contains(change.denied, topic)
	}), nil
}

func (w *topicWatch) report(change topicChanges, found topicadmin.Access) {
	grant := func(topics ...string) string {
		return w.commands.GrantTopics(topics,
			topicadmin.OpRead)
	}
	for _, topic := range w.list.missing() {
		switch {
		case !change.again && !slices.Contains(change.gone, topic):
		case slices.Contains(found.Denied, topic):
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
		w.log.Info("topic exists again", "topic", topic)
		w.observe(topic, false)
	}
	if len(change.lacking) > 0 {
		w.log.Warn("dead letters cannot be replayed until their topics exist: create them, or "+
			"set CreateDeadLetterTopics",
			"topics", change.lacking, "create", w.commands.CreateAll(change.lacking, nil,
				topicadmin.RetrySetting))
	}
	if len(change.denied) > 0 { // only replays need them (rule 46)
		w.log.Warn("retry topics must not be read: dead letters cannot be replayed, and copies "+
			"in these topics wait",
			"topics", change.denied, "grant", grant(change.denied...))
	}
}

func (w *topicWatch) observe(topic string, missing bool) {
	for _, o := range w.observers {
		o.ObserveTopic(context.Background(), observe.TopicEvent{Group: w.group, Topic: topic,
			Missing: missing})
	}
}

// subscription returns the topics to consume. The brokers are asked again only after an error and
// while a topic is missing. Otherwise the group would wait for the answer at each rebalance.
func (w *topicWatch) subscription(troubled bool) ([]string, error) {
	if troubled || !w.list.complete() {
		if _, err := w.look(); err != nil {
			return nil, err
		}
	}
	if topics := w.list.now(); len(topics) > 0 {
		return topics, nil
	}
	if denied := w.list.deniedNow(); len(denied) > 0 {
		return nil, w.commands.DeniedError(denied, topicadmin.OpRead)
	}
	return nil, &TopicError{Topics: w.list.missing()}
}

// errTopicBack ends a session because the subscription changes.
var errTopicBack = errors.New("a topic exists again")

// suspectPause is the shortest time between two looks, also after a broker's refusal.
const suspectPause = 5 * time.Second

// run looks for missing topics until ctx ends. run calls renew when one is back, or when a topic of
// the subscription must not be read any longer.
func (w *topicWatch) run(ctx context.Context, renew func(cause error)) {
	every := time.NewTicker(w.list.every)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.list.suspected:
		case <-every.C:
			if len(w.list.missing()) == 0 {
				continue
			}
		}
		if changed, err := w.look(); err == nil && changed {
			renew(errTopicBack)
		}
		if runner.Pause(ctx, min(suspectPause, w.list.every)) != nil {
			return
		}
	}
}
