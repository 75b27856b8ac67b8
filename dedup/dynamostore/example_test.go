package dynamostore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/dynamostore"
)

func Example() {
	ctx := context.Background()
	var cfg aws.Config // of config.LoadDefaultConfig(ctx)
	client := dynamodb.NewFromConfig(cfg)
	if err := dynamostore.Migrate(ctx, client, "store"); err != nil {
		fmt.Println(err)
		return
	}
	guard := dedup.NewGuard(dynamostore.New(client, "store"), dedup.GuardConfig{Retention: 24 * time.Hour})
	defer guard.Close()
	charge := func(context.Context) (string, error) { return "receipt 7", nil }
	receipt, replayed, err := dedup.Do(ctx, guard, dedup.Key{Scope: "charge", ID: "order-12345"}, charge)
	fmt.Println(receipt, replayed, err)
}
