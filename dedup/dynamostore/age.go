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
	known, ask := s.births.of(scope, now)
	if !ask {
		return known, nil
	}
	born := known
	if born.IsZero() {
		born = now
	}
	born, err := s.askBirth(ctx, scope, known, func(ctx context.Context) (time.Time, error) {
		return s.bear(ctx, bornKey(scope), born)
	})
	if err != nil {
		return time.Time{}, err
	}
	s.births.remember(scope, born, now)
	return born, nil
}

// knownBirth is birth without a write. The store has forgotten no event of an unknown scope: its
// birth is now.
func (s *Store) knownBirth(ctx context.Context, scope string, now time.Time) (time.Time, error) {
	known, ask := s.births.of(scope, now)
	if !ask {
		return known, nil
	}
	born, err := s.askBirth(ctx, scope, known, func(ctx context.Context) (time.Time, error) {
		it, err := s.get(ctx, bornKey(scope))
		if err != nil || len(it) == 0 {
			return time.Time{}, err
		}
		return bornOf(it)
	})
	switch {
	case err != nil:
		return time.Time{}, err
	case !born.IsZero():
		s.births.remember(scope, born, now)
		return born, nil
	case !known.IsZero(): // an emptied table: the next claim gives the birth back
		s.births.askAgain(scope)
		return known, nil
	}
	return now, nil
}

// askBirth returns the birth that ask returns. A known birth stands in for an error: births never
// change while the table is not emptied.
func (s *Store) askBirth(ctx context.Context, scope string, known time.Time,
	ask func(context.Context) (time.Time, error),
) (time.Time, error) {
	if known.IsZero() {
		born, err := ask(ctx)
		if err != nil {
			return time.Time{}, fmt.Errorf("birth of scope %q: %w", scope, err)
		}
		return born, nil
	}
	bounded, cancel := context.WithTimeout(ctx, birthWait(ctx))
	defer cancel()
	if born, err := ask(bounded); err == nil {
		return born, nil
	}
	return known, nil
}

// birthWait bounds the wait for a birth that the process remembers. At least half of the caller's
// time is left for the keys, which may be in other partitions.
func birthWait(ctx context.Context) time.Duration {
	const most = 500 * time.Millisecond
	if end, ok := ctx.Deadline(); ok {
		return min(most, time.Until(end)/2)
	}
	return most
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
