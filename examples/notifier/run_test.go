package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

// welcome is a record as a producer writes it: the identity is in the value.
func welcome(id, channel string) idemtest.Record {
	return idemtest.Record{Key: "u1", Value: notification{
		EventID: id, Type: channel, UserID: "u1", Template: "welcome",
	}}
}

// The router of the worker, with the deliveries that Kafka allows. Fake time: retries cost none.
func TestNotify_Run(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *idemtest.Consumer, *sendLog){
		"a producer writes twice": func(t *testing.T, c *idemtest.Consumer, sent *sendLog) {
			c.Deliver(welcome("e1", "email"), welcome("e1", "sms"))
			c.Duplicate("e1") // on both channels
			c.HandledOnce("e1")
			require.Equal(t, 2, c.Duplicates("e1"))
			require.Len(t, sent.out, 2)
		},
		"an ID comes with another content": func(t *testing.T, c *idemtest.Consumer, sent *sendLog) {
			c.Deliver(welcome("e1", "email"))
			c.Conflict("e1", notification{EventID: "e1", Type: "email", UserID: "u2", Template: "welcome"})
			c.HandledOnce("e1")
			require.Equal(t, 1, c.Conflicts("e1"))
			require.Len(t, sent.out, 1)
		},
		"a poison record holds nothing up": func(t *testing.T, c *idemtest.Consumer, sent *sendLog) {
			poison := c.Poison("email")
			c.Deliver(welcome("e1", "email"))
			c.HandledOnce("e1")
			require.Zero(t, c.Runs(poison))
			require.Len(t, c.DeadLetters(), 1)
			require.Equal(t, idem.ClassUndecodable, c.DeadLetters()[0].Class)
			require.Len(t, sent.out, 1)
		},
		"the partition moves before the commit": func(t *testing.T, c *idemtest.Consumer, sent *sendLog) {
			c.Deliver(welcome("e1", "email"))
			c.Rebalance()
			c.HandledOnce("e1")
			require.Equal(t, 1, c.Duplicates("e1"))
			require.Len(t, sent.out, 1)
		},
		"the store is down": func(t *testing.T, c *idemtest.Consumer, sent *sendLog) {
			c.StoreDown(func() {
				c.Deliver(welcome("e1", "email"))
				require.Zero(t, c.Runs("e1"))
				require.Len(t, c.Waiting(), 1)
			})
			c.HandledOnce("e1")
			require.Len(t, sent.out, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := &sendLog{}
				test(t, idemtest.Run(t, newRouter(sent, 4*time.Hour)), sent)
			})
		})
	}
}
