package idemtype

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

func TestMessage_Place(t *testing.T) {
	at := time.Unix(1700000000, 0)
	placed := &Message{Topic: "orders", Partition: 2, Offset: 7, Time: at}
	unplaced := &Message{Topic: "orders", Partition: -1, Offset: -1, Time: at}
	require.True(t, placed.Placed())
	require.False(t, unplaced.Placed())
	require.False(t, (&Message{}).Placed(), "without a topic")
	require.Equal(t, dedup.Origin{Topic: "orders", Partition: 2, Offset: 7, Time: at}, placed.Origin())
	require.Equal(t, dedup.Origin{Topic: "orders", Time: at}, unplaced.Origin())
	require.True(t, placed.SameRecord(placed.Origin()))
	require.False(t, placed.SameRecord(unplaced.Origin()))
	require.False(t, unplaced.SameRecord(unplaced.Origin()), "two messages without a place")
}
