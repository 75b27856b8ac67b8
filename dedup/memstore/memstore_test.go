package memstore_test

import (
	"testing"
	"testing/synctest"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/storetest"
)

func newStore(testing.TB) dedup.Store { return memstore.New(memstore.Capacity(1 << 30)) }

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		New:    newStore,
		Around: synctest.Test,
		Missing: []storetest.Ability{storetest.Check, storetest.Outage, storetest.Progress,
			storetest.Register},
	})
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, newStore) }

func TestOperator(t *testing.T) {
	storetest.RunOperator(t, storetest.Harness{New: newStore, Around: synctest.Test, Missing: []storetest.Ability{storetest.Outage}})
}

func TestDeferrer(t *testing.T) {
	storetest.RunDeferrer(t, storetest.Harness{New: newStore, Around: synctest.Test, Missing: []storetest.Ability{storetest.Outage}})
}
