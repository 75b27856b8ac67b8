package storetest

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// txLookTests cover looking without claiming.
func txLookTests[Tx any]() []txTest[Tx] {
	return []txTest[Tx]{
		{name: "tx: a look has the answer of a claim, without a claim", needs: TxLook,
			run: txLook[Tx]},
		{name: "tx: a look at many keys at once", needs: TxLook, run: txLookMany[Tx]},
		{name: "tx: a look does not see, nor wait for, a transaction under way (rules 20 and 21)",
			needs: TxLook, run: txLookHeld[Tx]},
		{name: "tx: a look brings results", needs: TxLook, run: txLookResult[Tx]},
		{name: "tx: a look finds conflicts", needs: TxLook, run: txLookConflict[Tx]},
		{name: "tx: a look knows second fingerprints (G-08)", needs: TxLook,
			run: txLookSecond[Tx]},
		{name: "tx: a look before the horizon is too old (rule 8)", needs: TxLook,
			run: txLookTooOld[Tx]},
		{name: "tx: a look at keys that do not ascend, or are none", needs: TxLook,
			run: txLookOrder[Tx]},
	}
}

func (k *txKit[Tx]) looker() dedup.TxLooker {
	k.Helper()
	l, ok := k.s.(dedup.TxLooker)
	require.True(k, ok, "%T has no LookTx, and Missing of the harness does not list it", k.s)
	return l
}

// look looks at one key and requires a verdict. Zero stands for a grant.
func (k *txKit[Tx]) look(want dedup.Verdict, r dedup.Request) dedup.Answer {
	k.Helper()
	answers := stale(1)
	for range 2 { // a look changes no record
		require.NoError(k, k.looker().LookTx(k.ctx, []dedup.Request{r}, answers))
		require.Equal(k, want.String(), answers[0].Verdict.String(), "key %q, position %v", r.Key,
			r.Position)
	}
	if want == 0 {
		require.Equal(k, dedup.Answer{}, answers[0])
	}
	return answers[0]
}

// lookAs requires the look at a key that is not granted to give exactly the answer of a claim.
func (k *txKit[Tx]) lookAs(want dedup.Verdict, r dedup.Request) {
	k.Helper()
	require.Equal(k, k.meets(want, r), k.look(want, r))
}

func txLook[Tx any](k *txKit[Tx]) {
	k.look(0, request("e"))
	k.one(dedup.Fresh, request("e"), k.effect("after a look"))
	k.lookAs(dedup.Done, request("e"))
	k.count(1, "after a look")

	r := request("dead")
	k.killed(r)
	k.lookAs(dedup.Dead, r)

	r = request("moved")
	k.one(dedup.Fresh, r, k.ends(r, "moved", func(c dedup.Claim) dedup.Completion {
		return moved(c, 2)
	}))
	k.lookAs(dedup.Rescheduled, r)
	k.lookAs(dedup.Rescheduled, at("moved", 0, 1))
	k.look(0, at("moved", 0, 2))
	k.look(0, at("moved", 0, 3))
	k.lookAs(dedup.Rescheduled, at("moved", 1, 0))
	k.one(dedup.Fresh, at("moved", 0, 2), k.effect("second"))
	k.lookAs(dedup.Done, r)

	_, err := k.call([]dedup.Request{request("failed")}, k.fails(errNotExpected))
	require.ErrorIs(k, err, errNotExpected)
	k.look(0, request("failed"))

	other := request("e")
	other.Key.Tenant = "never seen"
	k.look(0, other)
	other = request("e")
	other.Key.Scope = "never seen"
	k.look(0, other)
	a := [1]dedup.Answer{}
	require.NoError(k, k.s.Claim(k.ctx, dedup.NewToken(), long, []dedup.Request{request("claimed")},
		a[:]))
	k.look(0, request("claimed")) // the claims of Store are apart
}

func txLookMany[Tx any](k *txKit[Tx]) {
	const n = 60
	var done, reqs []dedup.Request
	for i := range n {
		r := request(fmt.Sprintf("many-%03d", i))
		if i%3 == 0 {
			done = append(done, r)
		}
		if i%5 == 0 {
			r.Origin.Topic = "another"
		}
		reqs = append(reqs, r)
	}
	_, err := k.call(done, k.effect("many"))
	require.NoError(k, err)
	answers := stale(n)
	require.NoError(k, k.looker().LookTx(k.ctx, reqs, answers))
	for i, a := range answers {
		if i%3 != 0 {
			require.Equal(k, dedup.Answer{}, a)
			continue
		}
		require.Equal(k, dedup.Done, a.Verdict)
		sameOrigin(k, request(reqs[i].Key.ID).Origin, a.First)
	}
}

func txLookHeld[Tx any](k *txKit[Tx]) {
	end := k.hold("held", request("e"))
	k.look(0, request("e")) // if it waited, it would fail: the holder does not end before
	require.NoError(k, end(nil))
	k.look(dedup.Done, request("e"))
}

func txLookResult[Tx any](k *txKit[Tx]) {
	if lacking(k.h.Missing, Results) {
		k.Skip("missing in the harness: results")
	}
	r, result := request("e"), dedup.Result{Schema: 3, Data: []byte("\x00{}\xff")}
	k.one(dedup.Fresh, r, k.ends(r, "result", func(c dedup.Claim) dedup.Completion {
		d := completion(c)
		d.Result = result
		return d
	}))
	k.lookAs(dedup.Done, r)
	require.Equal(k, result, k.look(dedup.Done, r).Result)
}

func txLookConflict[Tx any](k *txKit[Tx]) {
	if lacking(k.h.Missing, Fingerprints) {
		k.Skip("missing in the harness: fingerprints")
	}
	r := request("e")
	r.Fingerprint = dedup.Fingerprint{1}
	k.one(dedup.Fresh, r, k.effect("one"))
	k.lookAs(dedup.Done, r)
	k.lookAs(dedup.Done, request("e"))
	r.Fingerprint = dedup.Fingerprint{2}
	k.lookAs(dedup.Conflict, r)
	r.Position.Generation = 1
	k.look(dedup.Done, r)
}

func txLookTooOld[Tx any](k *txKit[Tx]) {
	if k.h.Horizon == nil {
		k.Skip("missing in the harness: horizon of its own")
	}
	r := request("known")
	k.one(dedup.Fresh, r, k.effect("known"))
	k.h.Horizon(k, k.s, r.Key.Scope, r.Origin.Time.Add(time.Hour))
	k.lookAs(dedup.Done, r)
	r = request("unknown")
	k.lookAs(dedup.TooOld, r)
	r.AnyAge = true
	k.look(0, r)
	r = request("unknown")
	r.Origin.Time = r.Origin.Time.Add(2 * time.Hour)
	k.look(0, r)
	k.look(0, at("unknown", 0, 1))
}

func txLookOrder[Tx any](k *txKit[Tx]) {
	answers := make([]dedup.Answer, 2)
	require.NoError(k, k.looker().LookTx(k.ctx, nil, nil))
	require.ErrorIs(k, k.looker().LookTx(k.ctx, []dedup.Request{request("b"), request("a")},
		answers), dedup.ErrOrder)
	require.Error(k, k.looker().LookTx(k.ctx, []dedup.Request{request("b")}, answers))
	require.ErrorIs(k, k.looker().LookTx(k.ctx, []dedup.Request{request("")}, answers[:1]),
		dedup.ErrKey)
}
