package runner

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/observers"
	"github.com/idem-go/idem/observe"
)

// TestSortObservers: an observer of rebalances and of one more event of the processor gets both,
// for each event of the processor.
func TestSortObservers(t *testing.T) {
	type rebalances = observe.RebalanceObserver
	both := []observe.Observer{
		struct {
			rebalances
			observe.HandledObserver
		}{},
		struct {
			rebalances
			observe.DuplicateObserver
		}{},
		struct {
			rebalances
			observe.DeadLetterObserver
		}{},
		struct {
			rebalances
			observe.RetryObserver
		}{},
		struct {
			rebalances
			observe.SkippedObserver
		}{},
		struct {
			rebalances
			observe.ClaimObserver
		}{},
		struct {
			rebalances
			observe.StoreObserver
		}{},
		struct {
			rebalances
			observe.StallObserver
		}{},
		struct {
			rebalances
			observe.ClaimGroupObserver
		}{},
		struct {
			rebalances
			observe.CallObserver
		}{},
		struct {
			rebalances
			observe.StoreCallObserver
		}{},
		struct {
			rebalances
			observe.SettledObserver
		}{},
		struct {
			rebalances
			observe.LostObserver
		}{},
		struct {
			rebalances
			observe.ConflictObserver
		}{},
		struct {
			rebalances
			observe.UnprotectedObserver
		}{},
		struct {
			rebalances
			observe.BreakerObserver
		}{},
	}
	own, others := sortObservers(both)
	require.Len(t, own.Rebalance, len(both))
	for field := range reflect.TypeFor[observers.Processor]().Fields() {
		tried, passed := 0, 0
		for _, o := range both {
			if reflect.TypeOf(o).Implements(field.Type.Elem()) {
				tried++
			}
		}
		for _, o := range others {
			if reflect.TypeOf(o).Implements(field.Type.Elem()) {
				passed++
			}
		}
		require.Equal(t, 1, tried, "this test has one observer with %s", field.Type.Elem())
		require.Equal(t, 1, passed, "the processor gets %s", field.Type.Elem())
	}
}

// TestSortObservers_Alone: observers of the runner alone are none of the processor. The processor
// gets a value without any interface of package observe, and refuses it.
func TestSortObservers_Alone(t *testing.T) {
	runners, none := new(topicsSeen), new(int)
	own, others := sortObservers([]observe.Observer{runners, none})
	require.Equal(t, []observe.TopicObserver{runners}, own.Topic)
	require.Equal(t, []observe.Observer{none}, others)
}
