package storetest

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// recorder notes the failure of a case instead of failing the test.
type recorder struct {
	testing.TB
	mu      sync.Mutex
	failure string
	skipped bool
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == "" {
		r.failure = fmt.Sprintf(format, args...)
	}
}

func (r *recorder) FailNow() { runtime.Goexit() }

func (r *recorder) Skip(...any) {
	r.skipped = true
	runtime.Goexit()
}

func (r *recorder) Skipf(string, ...any) { r.Skip() }

// verdictOf runs one case against a store and returns its failure, or "".
func verdictOf(t *testing.T, name string, h Harness) (failure string) {
	all := slices.Concat(claimTests, leaseTests, endTests, crossedTests, positionTests, keyTests,
		failTests, randomTests, horizonTests, lookTests, inspectTests, verbTests, listTests,
		deferTests, progressTests, registerTests)
	i := slices.IndexFunc(all, func(c testCase) bool { return c.name == name })
	require.GreaterOrEqual(t, i, 0, "no case %q", name)
	require.False(t, all[i].needs != "" && h.lacks(all[i].needs), "%q is skipped", name)
	synctest.Test(t, func(t *testing.T) {
		r, ended, h := &recorder{TB: t}, make(chan struct{}), h.ready(t)
		go func() {
			defer close(ended)
			all[i].run(newKit(r, h))
		}()
		<-ended
		require.False(t, r.skipped, "%q was skipped", name)
		failure = r.failure
	})
	return failure
}

func inMemory(of func(*memstore.Store) dedup.Store) Harness {
	return Harness{
		New: func(testing.TB) dedup.Store {
			return of(memstore.New(memstore.Capacity(1 << 30)))
		},
		Missing: []Ability{Check, Outage, Progress, Register},
	}
}

// refuted requires a case to fail with the broken store, and to pass with the sound one.
func refuted(t *testing.T, name string, broken, sound Harness) {
	t.Helper()
	failure := verdictOf(t, name, broken)
	require.NotEmpty(t, failure, "no case refutes the store")
	t.Log(failure)
	require.Empty(t, verdictOf(t, name, sound), "a sound store passes")
}

// Each case refutes the store that breaks its promise, and only the promise is broken.
func TestBrokenStoresFail(t *testing.T) {
	t.Setenv("IDEM_SEED", "7")
	for _, c := range []struct {
		name  string
		store func(*memstore.Store) dedup.Store
		cases []string
	}{
		{"keeps the counts at a reopening", newKeepsCounts, []string{
			"reopen: failures and take-overs are forgotten",
			"discard: may be reopened (T-02)",
			"random: thousands of calls agree with a model",
		}},
		{"a late repetition of a move releases the holder", newMovesAgain, []string{
			"complete: repeated after another claim, it has no effect",
		}},
		{"a late repetition of a death kills again", newKillsAgain, []string{
			"complete: repeated after another claim, it has no effect",
		}},
		{"looking renews", newLookRenews, []string{"look: keeps no claim alive"}},
		{"inspecting renews", newInspectRenews, []string{"inspect: looking keeps no claim alive"}},
		{"a take-over keeps the expiry", newKeepsExpiry, []string{
			"lease: a take-over is kept for its own lease and retention (rule 33)",
		}},
		{"Complete locks as it is called", func(s *memstore.Store) dedup.Store {
			return &locksInOrder{Store: s, locks: make(map[dedup.Key]chan struct{}), complete: true}
		}, []string{"calls: ends in opposite orders at once do not block each other (P-04)"}},
		{"Release locks as it is called", func(s *memstore.Store) dedup.Store {
			return &locksInOrder{Store: s, locks: make(map[dedup.Key]chan struct{}), release: true}
		}, []string{"calls: ends in opposite orders at once do not block each other (P-04)"}},
		{"a late success undoes a discard", newUndoesDiscard, []string{
			"discard: refuses the late success of a claim released as Unknown",
		}},
		{"a discard begins the fence anew", newDiscardsFence, []string{
			"discard: may be reopened (T-02)",
		}},
		{"a result above the limit is kept", newLimited(false, false), []string{
			"complete: a result above MaxResult is refused, and the claim stays",
		}},
		{"a result above the limit loses the claim", newLimited(true, true), []string{
			"complete: a result above MaxResult is refused, and the claim stays",
		}},
		{"no Look", func(s *memstore.Store) dedup.Store { return &plain{s} }, []string{
			"look: the answer that Claim would give, in every state",
			"look: refuses the keys that Claim refuses (P-04)",
		}},
		{"a claim without a fingerprint removes that of the record", newForgetsPrint, []string{
			"claim: one without a fingerprint keeps that of the record",
		}},
		{"unknown outcomes count as failures", newOutcomes(dedup.Failed), []string{
			"release: an outcome of a later version counts as Unstarted",
		}},
		{"unknown outcomes count as unknown", newOutcomes(dedup.Unknown), []string{
			"release: an outcome of a later version counts as Unstarted",
		}},
		{"unknown outcomes count as undone", newOutcomes(dedup.Undone), []string{
			"release: an outcome of a later version counts as Unstarted",
		}},
		{"results are shared", newSharesResults, []string{"claim: Done keeps result and schema"}},
		{"a renewal fails for a claim that is not there", newParts([]int{0, 2}, nil),
			[]string{cancelledBefore}},
		{"a renewal fails in part, for no claim", newParts(nil, []int{1}), []string{cancelledBefore}},
		{"a renewal fails in disorder", newParts([]int{1, 0}, nil), []string{cancelledBefore}},
		{"a renewal fails twice for a claim", newParts([]int{1, 1}, nil), []string{cancelledBefore}},
		{"a renewal fails for a lost claim", newParts([]int{0, 1}, []int{1}),
			[]string{cancelledBefore}},
		{"Fresh after Done", newDoneTwice, []string{
			"random: workers that race and crash never overlap and lose nothing",
		}},
	} {
		for _, name := range c.cases {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				refuted(t, name, inMemory(c.store), inMemory(newLimited(true, false)))
			})
		}
	}
}
