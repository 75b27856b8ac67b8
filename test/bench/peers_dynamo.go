package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// naiveTable remembers event IDs in a table of DynamoDB.
type naiveTable struct {
	client *dynamodb.Client
	name   string
}

// naiveDynamo puts the ID on the condition that it is new, and then makes the change.
func naiveDynamo(ctx context.Context, x *run) error {
	return consumeNaiveDynamo(ctx, x, func(ctx context.Context, t naiveTable, p *payment) error {
		fresh, err := t.begin(ctx, p.EventID, "DONE")
		if err == nil && fresh {
			x.meter.effect(p.Seq)
		}
		return err
	})
}

// naiveDynamoStatus takes a lock, makes the change, and stores the ID, as naiveRedis does.
func naiveDynamoStatus(ctx context.Context, x *run) error {
	return consumeNaiveDynamo(ctx, x, func(ctx context.Context, t naiveTable, p *payment) error {
		fresh, err := t.begin(ctx, p.EventID, "PENDING")
		if err != nil || !fresh {
			return err
		}
		x.meter.effect(p.Seq)
		_, err = t.client.PutItem(ctx, t.put(p.EventID, "COMPLETED"))
		return err
	})
}

func consumeNaiveDynamo(
	ctx context.Context, x *run, handle func(context.Context, naiveTable, *payment) error,
) error {
	return withDynamo(ctx, x, func(client *dynamodb.Client, table string) error {
		return consumeSarama(ctx, x, func(ctx context.Context, value []byte) error {
			x.meter.begin()
			var p payment
			if err := json.Unmarshal(value, &p); err != nil {
				return err
			}
			return handle(ctx, naiveTable{client, table}, &p)
		})
	})
}

// begin puts an ID that the table does not have. fresh is false if the table has it.
func (t naiveTable) begin(ctx context.Context, id, status string) (fresh bool, err error) {
	put := t.put(id, status)
	put.ConditionExpression = aws.String("attribute_not_exists(#k)")
	put.ExpressionAttributeNames = map[string]string{"#k": "key"}
	_, err = t.client.PutItem(ctx, put)
	if _, known := errors.AsType[*types.ConditionalCheckFailedException](err); known {
		return false, nil
	}
	return err == nil, err
}

func (t naiveTable) put(id, status string) *dynamodb.PutItemInput {
	return &dynamodb.PutItemInput{TableName: &t.name, Item: map[string]types.AttributeValue{
		"key":    &types.AttributeValueMemberS{Value: id},
		"status": &types.AttributeValueMemberS{Value: status},
	}}
}
