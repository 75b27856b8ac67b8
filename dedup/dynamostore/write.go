package dynamostore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// maxKey is the maximum length of a partition key in bytes.
const maxKey = 2048

// downAfter is the number of keys that fail without a success before the whole table counts as down.
const downAfter = 32

// keyOf is the partition key of an event: the text of the event's key, which has three colons. A
// text too long for DynamoDB is replaced by a hash with one colon.
func keyOf(k dedup.Key) string {
	name := k.String()
	if len(name) <= maxKey {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// each calls fn for 0 to n-1, some at a time, and returns when all calls have returned. After an
// error, each starts no further call.
func (s *Store) each(n int, fn func(i int) error) error {
	return s.eachUntil(n, anyFailed, fn)
}

// anyFailed ends a call whose answer is an error for all of its keys.
func anyFailed(failed, _ int) bool { return failed > 0 }

// allFailed ends a call that is of use for each key by itself, as soon as enough keys show that the
// whole table is down, and not a part of it.
func allFailed(failed, served int) bool { return served == 0 && failed >= downAfter }

// eachUntil is each, but decides with stop after each error whether a further call starts. The
// error is the first one, with the number of the others.
func (s *Store) eachUntil(n int, stop func(failed, served int) bool, fn func(i int) error) error {
	if n == 1 {
		return fn(0)
	}
	var (
		wg                   sync.WaitGroup
		mu                   sync.Mutex
		next, failed, served int
		first                error
	)
	take := func() int {
		mu.Lock()
		defer mu.Unlock()
		if stop(failed, served) {
			return n
		}
		next++
		return next - 1
	}
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			served++
			return
		}
		failed++
		if first == nil {
			first = err
		}
	}
	for range min(n, s.parallel) {
		wg.Go(func() {
			for i := take(); i < n; i = take() {
				note(fn(i))
			}
		})
	}
	wg.Wait()
	if failed > 1 {
		return fmt.Errorf("%w; %d more keys failed", first, failed-1)
	}
	return first
}

// read returns the item of key with all earlier writes. A missing item is nil.
func (s *Store) read(ctx context.Context, key string) (*record, error) {
	it, err := s.get(ctx, key)
	if err != nil || len(it) == 0 {
		return nil, err
	}
	return decode(key, it)
}

func (s *Store) get(ctx context.Context, key string) (item, error) {
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.table, Key: item{aKey: text(key)}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, err
	}
	return out.Item, nil
}

// put replaces old by next. A nil old is an item that is absent, or has expired and is not yet
// deleted (H-22). If the item is another one, put does not write, and current is that item.
func (s *Store) put(ctx context.Context, key string, old, next *record,
	now time.Time) (current *record, ok bool, err error) {
	c := newChange()
	var condition string
	if old == nil {
		condition = fmt.Sprintf("attribute_not_exists(%s) OR (%s < %s AND %s <> %s)", c.name(aKey),
			c.name(aExpires), c.value("now", number(now.Unix())), c.name(aState),
			c.value("claimed", text(states[decision.Claimed])))
	} else {
		condition = c.unchanged(old)
	}
	_, err = s.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &s.table, Item: next.encode(key), ConditionExpression: &condition,
		ExpressionAttributeNames: c.names, ExpressionAttributeValues: c.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	current, ok, err = refused(key, err)
	if current != nil && current.Token == next.Token && current.rev == next.rev &&
		current.State == next.State {
		// repeated by the SDK after a lost answer, or another caller wrote the same
		ok = true
	}
	return current, ok, err
}

// refused reads the answer to a conditional write: written, or refused, with the current item.
func refused(key string, err error) (current *record, ok bool, _ error) {
	var condition *types.ConditionalCheckFailedException
	switch {
	case err == nil:
		return nil, true, nil
	case !errors.As(err, &condition):
		return nil, false, err
	case len(condition.Item) == 0:
		return nil, false, nil
	}
	current, err = decode(key, condition.Item)
	return current, false, err
}

// speak changes the item of a claim that is held with t. If the claim is not held, current is
// the item.
func (s *Store) speak(ctx context.Context, key string, t dedup.Token,
	c *change) (updated item, current *record, ok bool, err error) {
	c.plusOne(aRev)
	state := fmt.Sprintf("%s = %s", c.name(aState), c.value("claimed", text(states[decision.Claimed])))
	if c.late != nil { // not claimed since: a later claim would have another token
		state = fmt.Sprintf("(%s OR %s = %s AND attribute_exists(%s) AND "+
			"attribute_not_exists(%s) AND %s)", state, c.name(aState),
			c.value("open", text(states[decision.Open])), c.name(aDoubt), c.name(aReopened),
			c.counts(aRetry, c.late.Retry))
	}
	condition := fmt.Sprintf("%s AND %s = %s", state, c.name(aToken),
		c.value("token", binary(t[:])))
	if c.only != "" {
		condition += " AND " + c.only
	}
	out, err := s.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &s.table, Key: item{aKey: text(key)}, UpdateExpression: c.expression(),
		ConditionExpression:      &condition,
		ExpressionAttributeNames: c.names, ExpressionAttributeValues: c.values,
		ReturnValues:                        types.ReturnValueUpdatedNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if out != nil {
		updated = out.Attributes
	}
	current, ok, err = refused(key, err)
	return updated, current, ok, err
}

// unavailable marks an error of DynamoDB or the network: throttling, a missing table or right, a
// broken network. No such error is the event's fault. Requests are checked before the
// sending, and the only answer about an item is ConditionalCheckFailedException. An unreadable
// item is no answer either (rule 35).
func (s *Store) unavailable(ctx context.Context, verb string, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	if setup := s.setupError(verb, err); setup != nil {
		return fmt.Errorf("dynamodb: %s: %w", verb, setup)
	}
	return fmt.Errorf("dynamodb: %s: %w: %w", verb, dedup.ErrUnavailable, err)
}

// setupError returns a set-up error behind the error of verb, or nil. Such an error needs a person:
// waiting does not help.
func (s *Store) setupError(verb string, err error) error {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return nil
	}
	switch api.ErrorCode() {
	case (&types.ResourceNotFoundException{}).ErrorCode():
		return &dedup.SetupError{Problem: "table " + s.table + " is missing",
			Fix: "run `aws dynamodb create-table --table-name " + s.table +
				" --attribute-definitions AttributeName=" + aKey + ",AttributeType=S" +
				" --key-schema AttributeName=" + aKey + ",KeyType=HASH" +
				" --billing-mode PAY_PER_REQUEST`, or dynamostore.Migrate", Err: err}
	case "AccessDeniedException":
		own := "" // the right of this verb beyond those of a consumer
		if verb == "forget" {
			own = "dynamodb:DeleteItem, "
		}
		return &dedup.SetupError{Problem: "a right on table " + s.table + " is missing",
			Fix: "allow dynamodb:GetItem, dynamodb:PutItem, dynamodb:UpdateItem, " + own +
				"dynamodb:DescribeTable and dynamodb:DescribeTimeToLive on it in the policy of " +
				"the role", Err: err}
	case "UnrecognizedClientException", "MissingAuthenticationTokenException",
		"MissingAuthenticationToken":
		return &dedup.SetupError{Problem: "DynamoDB does not know the credentials",
			Fix: "give the client the credentials of a known account", Err: err}
	}
	return nil
}

// remove deletes an item that is still r.
func (s *Store) remove(ctx context.Context, key string, r *record) (current *record, ok bool,
	err error) {
	c := newChange()
	condition := c.unchanged(r)
	_, err = s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: &s.table, Key: item{aKey: text(key)}, ConditionExpression: &condition,
		ExpressionAttributeNames: c.names, ExpressionAttributeValues: c.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	return refused(key, err)
}
