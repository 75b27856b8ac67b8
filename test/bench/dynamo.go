package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/idem-go/idem/dedup/dynamostore"
)

// dynamoRows remember events in DynamoDB Local. The server keeps its tables in memory and takes
// most of the processor time, so the topics are short.
func dynamoRows(n sizes) []row {
	s := spec{deliveries: n.dynamo, partitions: 6, seed: 1}
	return []row{
		{
			name:    "naive-dynamo",
			about:   "a conditional PutItem an event, sarama; a crash before the effect loses it",
			spec:    s,
			consume: naiveDynamo,
		},
		{
			name:    "naive-dynamo-status",
			about:   "PutItem PENDING and COMPLETED an event, sarama",
			spec:    s,
			consume: naiveDynamoStatus,
		},
		{
			name:    "idem-dynamo-on",
			about:   "On, DynamoDB, 16 lanes",
			spec:    s,
			consume: idemOnDynamo,
			lanes:   16,
		},
	}
}

// dynamoConnections is the number of idle connections to DynamoDB. Lanes send as many requests.
const dynamoConnections = 128

// dynamoURL returns the address of DynamoDB.
func dynamoURL() (*url.URL, error) {
	text := os.Getenv("DYNAMODB_URL")
	if text == "" {
		return nil, errors.New(
			"DYNAMODB_URL is not set: run it by `make bench`, or by test/services/services.sh run",
		)
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, errors.New("DYNAMODB_URL cannot be parsed")
	}
	return u, nil
}

// withDynamo calls use with a table of the run's own, and deletes the table afterwards. Its key is
// the one of Idem's store.
func withDynamo(
	ctx context.Context, x *run, use func(client *dynamodb.Client, table string) error,
) error {
	server, err := dynamoURL()
	if err != nil {
		return err
	}
	transport := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = dynamoConnections
	}).GetTransport()
	defer transport.CloseIdleConnections()
	client := dynamodb.New(dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String(server.String()),
		HTTPClient:  &http.Client{Transport: transport, Timeout: commitWait},
		Credentials: credentials.NewStaticCredentialsProvider("bench", "bench", ""),
	})
	table := strings.ToLower(x.group)
	if err := dynamostore.Migrate(ctx, client, table); err != nil {
		return err
	}
	err = use(client, table)
	remove, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitWait)
	defer cancel()
	_, failed := client.DeleteTable(remove, &dynamodb.DeleteTableInput{TableName: &table})
	return errors.Join(err, failed)
}
