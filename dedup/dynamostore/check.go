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

var (
	errSchema  = errors.New("table has another key: it must be the attribute key, of type S, alone")
	errRegions = errors.New("global table with eventually consistent replicas: two regions may " +
		"both claim an event; declare with dynamostore.OneRegion() that all processes use the " +
		"same region")
)

// Check implements [dedup.Checker] with two calls of DynamoDB's control plane and one read.
// Check refuses a table with another key, and one with eventually consistent replicas in other
// regions ([OneRegion]). A table that never deletes expired items is a warning. A missing table
// or right is a [*dedup.SetupError]: run [Migrate], or grant the right. A table that is being
// created or deleted is [dedup.ErrUnavailable].
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	table, err := s.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &s.table})
	if err != nil {
		return nil, s.unavailable(ctx, "check", err)
	}
	if err := s.fit(table.Table); err != nil {
		return nil, err
	}
	ttl, err := s.client.DescribeTimeToLive(ctx,
		&dynamodb.DescribeTimeToLiveInput{TableName: &s.table})
	if err != nil {
		return nil, s.unavailable(ctx, "check", err)
	}
	if !deletes(ttl.TimeToLiveDescription) {
		warnings = append(warnings, fmt.Sprintf("dynamodb: table %s: time to live is off for the "+
			"attribute %s: expired items are never deleted", s.table, aExpires))
	}
	return warnings, s.Ping(ctx)
}

// fit reports whether a table can be used as a store.
func (s *Store) fit(t *types.TableDescription) error {
	wrong := func(err error) error {
		return fmt.Errorf("dynamodb: check: table %s: %w", s.table, err)
	}
	switch t.TableStatus {
	case types.TableStatusActive, types.TableStatusUpdating:
	default:
		return fmt.Errorf("dynamodb: check: %w: table %s is %s", dedup.ErrUnavailable, s.table,
			t.TableStatus)
	}
	if len(t.KeySchema) != 1 || aws.ToString(t.KeySchema[0].AttributeName) != aKey {
		return wrong(errSchema)
	}
	for _, a := range t.AttributeDefinitions {
		if aws.ToString(a.AttributeName) == aKey && a.AttributeType != types.ScalarAttributeTypeS {
			return wrong(errSchema)
		}
	}
	if len(t.Replicas) > 0 && t.MultiRegionConsistency != types.MultiRegionConsistencyStrong &&
		!s.regional {
		return wrong(errRegions)
	}
	return nil
}

func deletes(d *types.TimeToLiveDescription) bool {
	if d == nil || aws.ToString(d.AttributeName) != aExpires {
		return false
	}
	return d.TimeToLiveStatus == types.TimeToLiveStatusEnabled ||
		d.TimeToLiveStatus == types.TimeToLiveStatusEnabling
}

// Ping implements [dedup.Checker] with one consistent read of an item that no event has.
func (s *Store) Ping(ctx context.Context) error {
	if _, err := s.get(ctx, "ping"); err != nil {
		return s.unavailable(ctx, "ping", err)
	}
	return nil
}

// migrateTime is how long [Migrate] waits for a new table.
const migrateTime = 5 * time.Minute

// Migrate creates the table of a store, billed on demand, waits until the table can be used, and
// switches on the deletion of expired items. You may call Migrate at each start, in several
// processes at once. Migrate does not change the table of an earlier release. The role needs
// dynamodb:CreateTable and dynamodb:UpdateTimeToLive, besides the rights of a consumer.
func Migrate(ctx context.Context, client *dynamodb.Client, table string) error {
	if err := migrate(ctx, client, table); err != nil {
		return fmt.Errorf("dynamodb: migrate table %s: %w", table, err)
	}
	return nil
}

func migrate(ctx context.Context, client *dynamodb.Client, table string) error {
	describe := &dynamodb.DescribeTableInput{TableName: &table}
	_, err := client.DescribeTable(ctx, describe)
	if isType[*types.ResourceNotFoundException](err) {
		_, err = client.CreateTable(ctx, &dynamodb.CreateTableInput{
			TableName: &table, BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String(aKey),
				AttributeType: types.ScalarAttributeTypeS}},
			KeySchema: []types.KeySchemaElement{{AttributeName: aws.String(aKey),
				KeyType: types.KeyTypeHash}},
		})
	}
	if err != nil && !isType[*types.ResourceInUseException](err) { // another process creates it
		return err
	}
	waiter := dynamodb.NewTableExistsWaiter(client, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 100*time.Millisecond, 5*time.Second
	})
	if err := waiter.Wait(ctx, describe, migrateTime); err != nil {
		return err
	}
	return expire(ctx, client, table)
}

// expire switches time to live on. If time to live is on already, DynamoDB refuses the call,
// which is no error.
func expire(ctx context.Context, client *dynamodb.Client, table string) error {
	on := func() (bool, error) {
		d, err := client.DescribeTimeToLive(ctx,
			&dynamodb.DescribeTimeToLiveInput{TableName: &table})
		if err != nil {
			return false, err
		}
		return deletes(d.TimeToLiveDescription), nil
	}
	if is, err := on(); is || err != nil {
		return err
	}
	_, err := client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName: &table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String(aExpires),
			Enabled: aws.Bool(true)},
	})
	if err == nil {
		return nil
	}
	if is, again := on(); is && again == nil {
		return nil
	}
	return err
}

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
