package main

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/idem-go/idem/dedup/dynamostore"
)

func idemOnDynamo(ctx context.Context, x *run) error {
	return withDynamo(ctx, x, func(client *dynamodb.Client, table string) error {
		return idemOn(ctx, x, dynamostore.New(client, table))
	})
}
