package events

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/internal/deadletters"
	"github.com/idem-go/idem/internal/jsontime"
)

// LettersAt are the dead letters of an event, and where they were looked for.
type DeadLettersAt struct {
	Topics      []string     `json:"topics"`
	Scanned     int          `json:"scanned"`
	Cut         bool         `json:"cut,omitempty"` // there are more
	DeadLetters []DeadLetter `json:"dead_letters"`
}

// DeadLetter is a dead letter of an event.
type DeadLetter struct {
	Topic      string     `json:"topic"`
	Partition  int32      `json:"partition"`
	Offset     int64      `json:"offset"`
	Class      string     `json:"class"`
	Error      string     `json:"error"`
	Attempts   int        `json:"attempts"`
	Generation uint32     `json:"generation"`
	First      *time.Time `json:"first_failure,omitempty"`
	Last       *time.Time `json:"last_failure,omitempty"`
	Origin     *Origin    `json:"origin"`

	Written time.Time `json:"-"` // to the dead-letter topic
}

// maxDeadLettersShown limits the listed dead letters of one event.
const maxDeadLettersShown = 1000

// DeadLetters searches the dead-letter topics of a group: that of the query's topic, or all with
// default names, from begin to end. A topic without a dead-letter topic has none. The error matches
// dedup.ErrKey like that of [Find]. After an error, the dead letters found so far are returned with
// the error.
func DeadLetters(
	ctx context.Context, client sarama.Client, group string, q Query,
) (*DeadLettersAt, error) {
	all := &DeadLettersAt{DeadLetters: []DeadLetter{}}
	if err := q.Key().Validate(); err != nil {
		return all, err
	}
	if q.Topic != "" {
		all.Topics = []string{deadletter.Topic(group)(q.Topic)}
	} else {
		var err error
		if all.Topics, err = deadletters.TopicsOf(client, group); err != nil {
			return all, err
		}
	}
	filter := deadletters.Filter{Scope: q.Scope, ID: q.ID}
	if q.Type != "" {
		filter.Types = []string{q.Type}
	}
	var err error
	all.Scanned, err = deadletters.Scan(
		ctx,
		client,
		all.Topics,
		filter,
		func(l *deadletters.Found) (bool, error) {
			if q.Tenant != "" && l.DeadLetter.Key.Tenant != q.Tenant {
				return true, nil
			}
			if len(all.DeadLetters) == maxDeadLettersShown {
				all.Cut = true
				return false, nil
			}
			all.DeadLetters = append(all.DeadLetters, deadLetterOf(l))
			return true, nil
		},
	)
	if q.Topic != "" && errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		all.Topics, err = nil, nil // the topic has no dead letters
	}
	return all, err
}

func deadLetterOf(l *deadletters.Found) DeadLetter {
	x, m := l.DeadLetter, l.DeadLetter.Message
	return DeadLetter{
		Topic: l.Topic, Partition: l.Partition, Offset: l.Offset, Class: string(x.Class), Error: x.Error, Attempts: x.Attempts,
		Generation: x.Position.Generation,
		First:      jsontime.Pointer(x.FirstFailure), Last: jsontime.Pointer(x.LastFailure),
		Origin:  &Origin{m.Topic, m.Partition, m.Offset, jsontime.Pointer(m.Time)},
		Written: l.Record.Time,
	}
}
