package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/idem-go/idem/dedup"
)

// tooOld marks the requests about events that the store may have handled and forgotten (rule 8).
// Their time lies before the horizon, and so does the birth of their scope.
func (s *Store) tooOld(ctx context.Context, reqs []dedup.Request) ([]bool, error) {
	old := make([]bool, len(reqs))
	now := s.now()
	var born time.Time
	for i := range reqs {
		r := &reqs[i]
		if i == 0 || r.Key.Scope != reqs[i-1].Key.Scope {
			var err error
			if born, err = s.birth(ctx, r.Key.Scope, now); err != nil {
				return nil, err
			}
		}
		if r.AnyAge || r.Position != (dedup.Position{}) || r.Origin.Time.UnixMilli() <= 0 {
			continue // no time, or one before 1970: Kafka has -1 for records without a time
		}
		limit := horizon(now, r.Retention)
		old[i] = r.Origin.Time.Before(limit) && born.Before(limit)
	}
	return old, nil
}

// horizon is the time before which the store may have forgotten an event. The margin is for clocks:
// events have the time of a producer or a broker, records expire by those of the hosts.
func horizon(now time.Time, retention time.Duration) time.Time {
	return now.Add(-retention + min(margin(retention), retention/2))
}

// birth is the first use of scope in this store. The store has forgotten no event from before.
// The first caller sets it. The item does not expire, because its presence shows whether others
// may have expired.
func (s *Store) birth(ctx context.Context, scope string, now time.Time) (time.Time, error) {
	b := &s.births
	b.mu.Lock()
	born, ok := b.known[scope]
	b.mu.Unlock()
	if ok {
		return born, nil
	}
	born, err := s.bear(ctx, dedup.Join("born", scope), now)
	if err != nil {
		return time.Time{}, fmt.Errorf("birth of scope %q: %w", scope, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == nil || len(b.known) >= maxBirths {
		b.known = make(map[string]time.Time)
	}
	b.known[scope] = born
	return born, nil
}

func (s *Store) bear(ctx context.Context, key string, now time.Time) (time.Time, error) {
	c := newChange()
	_, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &s.table, Item: item{aKey: text(key), aVersion: number(version),
			aBorn: number(now.UnixMilli())},
		ConditionExpression: aws.String(
			"attribute_not_exists(" + c.name(aKey) + ")"),
		ExpressionAttributeNames:            c.names,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var there *types.ConditionalCheckFailedException
	if err == nil {
		return now, nil
	}
	if !errors.As(err, &there) {
		return time.Time{}, err
	}
	d := decoder{item: there.Item}
	at := d.number(aBorn, 1<<62)
	if at <= 0 || d.bad != "" {
		return time.Time{}, fmt.Errorf("%w: attribute %s", errItem, aBorn)
	}
	return time.UnixMilli(at), nil
}
