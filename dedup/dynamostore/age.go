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
// Their time lies before the horizon, and so does the birth of their scope. born returns the birth
// of a scope. With all, born is called for every scope, also for one without an event of an age.
func (s *Store) tooOld(ctx context.Context, reqs []dedup.Request, all bool,
	born func(ctx context.Context, scope string, now time.Time) (time.Time, error),
) (old []bool, err error) {
	old = make([]bool, len(reqs))
	now := s.now()
	var birth time.Time
	asked := -1 // the request of birth
	for i := range reqs {
		r, aged := &reqs[i], hasAge(&reqs[i])
		if asked < 0 || r.Key.Scope != reqs[asked].Key.Scope {
			if !aged && !all {
				continue
			}
			if birth, err = born(ctx, r.Key.Scope, now); err != nil {
				return nil, err
			}
			asked = i
		}
		limit := horizon(now, r.Retention)
		old[i] = aged && r.Origin.Time.Before(limit) && birth.Before(limit)
	}
	return old, nil
}

// hasAge reports whether the age of r counts. An event without a time, or before 1970, has no age:
// Kafka has -1 for records without a time.
func hasAge(r *dedup.Request) bool {
	return !r.AnyAge && r.Position == (dedup.Position{}) && r.Origin.Time.UnixMilli() > 0
}

// horizon is the time before which the store may have forgotten an event. The margin is for clocks:
// events have the time of a producer or a broker, records expire by those of the hosts.
func horizon(now time.Time, retention time.Duration) time.Time {
	return now.Add(-retention + min(margin(retention), retention/2))
}

// birth is the first use of scope in this store. The store has forgotten no event from before.
// The first caller sets it. The item does not expire, because its presence shows whether others
// may have expired. An emptied table gets the remembered birth back, since the store has then
// forgotten events from after it.
func (s *Store) birth(ctx context.Context, scope string, now time.Time) (time.Time, error) {
	born, recent := s.births.of(scope, now)
	if recent {
		return born, nil
	}
	if born.IsZero() {
		born = now
	}
	born, err := s.bear(ctx, bornKey(scope), born)
	if err != nil {
		return time.Time{}, fmt.Errorf("birth of scope %q: %w", scope, err)
	}
	s.births.remember(scope, born, now)
	return born, nil
}

// knownBirth is birth without a write. The store has forgotten no event of an unknown scope: its
// birth is now.
func (s *Store) knownBirth(ctx context.Context, scope string, now time.Time) (time.Time, error) {
	born, recent := s.births.of(scope, now)
	if recent {
		return born, nil
	}
	it, err := s.get(ctx, bornKey(scope))
	switch {
	case err != nil:
	case len(it) > 0:
		born, err = bornOf(it)
	case born.IsZero():
		return now, nil
	default: // an emptied table
		return born, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("birth of scope %q: %w", scope, err)
	}
	s.births.remember(scope, born, now)
	return born, nil
}

func bornKey(scope string) string { return dedup.Join("born", scope) }

// bear writes a birth unless there is one, and returns the one that is there.
func (s *Store) bear(ctx context.Context, key string, born time.Time) (time.Time, error) {
	c := newChange()
	_, err := s.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &s.table, Item: item{aKey: text(key), aVersion: number(version),
			aBorn: number(born.UnixMilli())},
		ConditionExpression: aws.String(
			"attribute_not_exists(" + c.name(aKey) + ")"),
		ExpressionAttributeNames:            c.names,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var there *types.ConditionalCheckFailedException
	if err == nil {
		return born, nil
	}
	if !errors.As(err, &there) {
		return time.Time{}, err
	}
	return bornOf(there.Item)
}

// bornOf reads the item of a birth.
func bornOf(it item) (time.Time, error) {
	d := decoder{item: it}
	at := d.number(aBorn, 1<<62)
	if at <= 0 || d.bad != "" {
		return time.Time{}, fmt.Errorf("%w: attribute %s", errItem, aBorn)
	}
	return time.UnixMilli(at), nil
}
