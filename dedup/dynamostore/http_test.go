package dynamostore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/dynamostore"
	"github.com/idem-go/idem/httpidem/httpidemtest"
)

// The HTTP door over DynamoDB (H-04 and the rest of the suite). A lease ends when a caller has
// watched it for its length.
func TestHTTPSuite(t *testing.T) {
	var tables sync.Map // by store
	httpidemtest.Run(t, httpidemtest.Harness{
		NewStore: func(t testing.TB) dedup.Store {
			client, table := newTable(t)
			s := dynamostore.New(client, table)
			tables.Store(s, table)
			return s
		},
		Peer: func(t testing.TB, s dedup.Store) dedup.Store {
			table, ok := tables.Load(s)
			require.True(t, ok)
			return dynamostore.New(connect(t, endpoint(t), nil), table.(string))
		},
		Callers: 50, Keys: 100, Lease: 500 * time.Millisecond,
	})
}
