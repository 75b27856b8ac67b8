package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
)

// town is the world of the notifier: a provider that knows idempotency keys.
type town struct {
	*idemtest.Faults
	ignoresKeys bool
	sent        []string
}

func newTown(_ testing.TB, f *idemtest.Faults) *town { return &town{Faults: f} }

// Send implements sender.
func (w *town) Send(ctx context.Context, n notification, key string) error {
	if w.ignoresKeys {
		key = ""
	}
	return w.CallWithKey(ctx, "send "+n.Type, key, func() {
		w.sent = append(w.sent, n.Type+" "+n.EventID)
	})
}

// state does not depend on the order: the notifications are for different users.
func (w *town) state() any { return slices.Sorted(slices.Values(w.sent)) }

func notifier(r *idem.Router, w *town) { *r = *newRouter(w, 4*time.Hour) }

func notifications() idemtest.TortureOption {
	return idemtest.Records(
		idemtest.Record{Key: "u1", Value: notification{
			EventID: "e1", Type: "email", UserID: "u1", Template: "welcome",
		}},
		idemtest.Record{Key: "u2", Value: notification{
			EventID: "e1", Type: "sms", UserID: "u2", Template: "welcome",
		}},
	)
}

// No crash, pause, copy or failing call sends a notification twice or loses it, if the provider
// knows keys. The kit finds the repetition if the provider does not.
func TestNotify_Torture(t *testing.T) {
	idemtest.Torture(t, newTown, notifier, (*town).state, notifications(), idemtest.Pairs(60))
	text, broken := idemtest.Search(t, func(t testing.TB, f *idemtest.Faults) *town {
		w := newTown(t, f)
		w.ignoresKeys = true
		return w
	}, notifier, (*town).state, notifications(), idemtest.Pairs(0))
	require.True(t, broken)
	require.Contains(t, text, `"send email" for event "e1" had its effect 2 times`)
}
