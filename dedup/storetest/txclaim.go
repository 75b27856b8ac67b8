package storetest

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// txClaimTests cover claims and records that are written together with effects.
func txClaimTests[Tx any]() []txTest[Tx] {
	return []txTest[Tx]{
		{name: "tx: Fresh runs, effect and mark commit together", run: txFresh[Tx]},
		{name: "tx: an error rolls effect and mark back", run: txError[Tx]},
		{name: "tx: two at once, one effect, the other waits and is Done (P-01)", run: txPair[Tx]},
		{name: "tx: two at once, the first fails, the other runs (P-01)", run: txPairFails[Tx]},
		{name: "tx: many at once, one effect", run: txRace[Tx]},
		{name: "tx: Busy while the holder is slow (rule 10)", needs: TxParallel,
			run: txBusy[Tx]},
		{name: "tx: a group does not wait, nothing of it remains (rule 1)", needs: TxParallel,
			alone: true,
			run:   txContended[Tx]},
		{name: "tx: a group mixes verdicts", run: txMixed[Tx]},
		{name: "tx: a group of 300", run: txMany[Tx]},
		{name: "tx: Dead by a completion", run: txDead[Tx]},
		{name: "tx: dead, the origin is the dead-lettered delivery (rule 6)",
			run: txDeadOrigin[Tx]},
		{name: "tx: Retry by a completion (rule 3)", run: txRetry[Tx]},
		{name: "tx: a completion for some, the rest is Done", run: txSome[Tx]},
		{name: "tx: a completion of an event that the call did not claim", run: txForeign[Tx]},
		{name: "tx: keys must ascend, and be valid", run: txOrder[Tx]},
		{name: "tx: awkward keys are different keys (R-17, P-23)", run: txKeys[Tx]},
		{name: "tx: apart from the claims of Store", run: txApart[Tx]},
		{name: "tx: context cancelled, nothing happens", run: txContext[Tx]},
		{name: "tx: results are kept", needs: Results, run: txResult[Tx]},
		{name: "tx: another fingerprint is a Conflict (P-24)", needs: Fingerprints,
			run: txConflict[Tx]},
		{name: "tx: a second fingerprint is no conflict (G-08)", needs: Fingerprints,
			run: txSecond[Tx]},
	}
}

func txFresh[Tx any](k *txKit[Tx]) {
	r := request("e")
	a := k.one(dedup.Fresh, r, k.effect("paid"))
	sameOrigin(k, r.Origin, a.First)
	k.count(1, "paid")
	again := r
	again.Origin = origin(7, 70)
	a = k.meets(dedup.Done, again)
	sameOrigin(k, r.Origin, a.First)
	require.True(k, a.Result.IsZero())
	k.count(1, "paid")
}

func txError[Tx any](k *txKit[Tx]) {
	why := errors.New("no such order")
	for range 2 {
		_, err := k.call([]dedup.Request{request("e")}, func(tx Tx,
			_ []dedup.Answer) ([]dedup.Completion, error) {
			require.NoError(k, k.h.Exec(k.ctx, tx, "undone"))
			return nil, why
		})
		require.ErrorIs(k, err, why)
		require.NotErrorIs(k, err, dedup.ErrUnavailable, "an error of fn is no outage")
		require.NotErrorIs(k, err, dedup.ErrUnknownCommit)
		k.count(0, "undone")
	}
	group := []dedup.Request{request("e"), request("f")}
	_, err := k.call(group, func(tx Tx, _ []dedup.Answer) ([]dedup.Completion, error) {
		return nil, errors.Join(k.h.Exec(k.ctx, tx, "undone"), why)
	})
	require.ErrorIs(k, err, why)
	k.count(0, "undone")
	k.unmarked(request("e"))
	k.unmarked(request("f"))
}

func txPair[Tx any](k *txKit[Tx]) {
	end := k.hold("one", request("e"))
	second := make(chan dedup.Answer, 1)
	errs := make(chan error, 1)
	go func() {
		var a [1]dedup.Answer
		errs <- k.s.ClaimTx(k.ctx, runLimit, []dedup.Request{request("e")}, a[:],
			func(tx Tx) ([]dedup.Completion, error) { return nil, k.h.Exec(k.ctx, tx, "one") })
		second <- a[0]
	}()
	runtime.Gosched()
	require.NoError(k, end(nil))
	require.NoError(k, <-errs)
	a := <-second
	require.Contains(k, []dedup.Verdict{dedup.Done, dedup.Busy}, a.Verdict)
	k.meets(dedup.Done, request("e"))
	k.count(1, "one")
}

func txPairFails[Tx any](k *txKit[Tx]) {
	end := k.hold("first", request("e"))
	second := make(chan dedup.Answer, 1)
	errs := make(chan error, 1)
	go func() {
		var a [1]dedup.Answer
		errs <- k.s.ClaimTx(k.ctx, runLimit, []dedup.Request{request("e")}, a[:],
			func(tx Tx) ([]dedup.Completion, error) { return nil, k.h.Exec(k.ctx, tx, "second") })
		second <- a[0]
	}()
	why := errors.New("rolled back")
	require.ErrorIs(k, end(why), why)
	require.NoError(k, <-errs)
	a := <-second
	require.Contains(k, []dedup.Verdict{dedup.Fresh, dedup.Busy}, a.Verdict)
	k.count(0, "first")
	if a.Verdict == dedup.Fresh {
		k.count(1, "second")
		k.meets(dedup.Done, request("e"))
	}
}

func txRace[Tx any](k *txKit[Tx]) {
	const racers = 12
	errs := inParallel(racers, func(int) error {
		for range 100 {
			var a [1]dedup.Answer
			err := k.s.ClaimTx(k.ctx, runLimit, []dedup.Request{request("race")}, a[:],
				func(tx Tx) ([]dedup.Completion, error) { return nil, k.h.Exec(k.ctx, tx, "once") })
			if err != nil || a[0].Verdict == dedup.Done || a[0].Verdict == dedup.Fresh {
				return err
			}
			if a[0].Verdict != dedup.Busy {
				return errNotExpected
			}
		}
		return errNotExpected // Busy for ever
	})
	for _, err := range errs {
		require.NoError(k, err)
	}
	k.count(1, "once")
}

func txBusy[Tx any](k *txKit[Tx]) {
	end := k.hold("slow", request("e"))
	began := time.Now()
	a := k.meets(dedup.Busy, request("e"))
	require.Less(k, time.Since(began), 5*time.Second, "a wait on a claim is at most 2 s")
	require.GreaterOrEqual(k, a.Wait, time.Duration(0))
	k.unmarked(request("f")) // the others are not held up
	require.NoError(k, end(nil))
	k.meets(dedup.Done, request("e"))
	k.count(1, "slow")
}

func txContended[Tx any](k *txKit[Tx]) {
	end := k.hold("held", request("b"))
	began := time.Now()
	_, err := k.call([]dedup.Request{request("a"), request("b"), request("c")}, k.effect("group"))
	require.ErrorIs(k, err, dedup.ErrContended)
	require.NotErrorIs(k, err, dedup.ErrUnavailable, "it is not down, it is in use")
	require.Less(k, time.Since(began), time.Second, "a group does not wait")
	k.count(0, "group")
	k.unmarked(request("a"))
	k.unmarked(request("c"))
	require.NoError(k, end(nil))
	k.meets(dedup.Done, request("b"))
	k.count(1, "held")
}

func txMixed[Tx any](k *txKit[Tx]) {
	k.one(dedup.Fresh, request("b"), k.effect("before"))
	k.one(dedup.Fresh, request("d"), k.ends(request("d"), "before",
		func(c dedup.Claim) dedup.Completion {
			return dead(c, "poison")
		}))
	group := []dedup.Request{request("a"), request("b"), request("c"), request("d")}
	answers, err := k.call(group, k.effect("group"))
	require.NoError(k, err)
	require.Equal(k, []dedup.Verdict{dedup.Fresh, dedup.Done, dedup.Fresh, dedup.Dead},
		verdicts(answers))
	require.Equal(k, "poison", answers[3].Reason)
	k.count(1, "group")
	answers, err = k.call(group[:3], k.fails(errNotExpected))
	require.NoError(k, err, "nothing is Fresh, nothing runs")
	require.Equal(k, []dedup.Verdict{dedup.Done, dedup.Done, dedup.Done}, verdicts(answers))
}

func txMany[Tx any](k *txKit[Tx]) {
	var reqs []dedup.Request
	for i := range 300 {
		r := request(numbered("many", i))
		r.Origin = origin(2, i)
		reqs = append(reqs, r)
	}
	for i := 0; i < len(reqs); i += 3 {
		k.one(dedup.Fresh, reqs[i], k.effect("single"))
	}
	answers, err := k.call(reqs, k.effect("group"))
	require.NoError(k, err)
	for i, a := range answers {
		want := dedup.Fresh
		if i%3 == 0 {
			want = dedup.Done
		}
		require.Equal(k, want, a.Verdict, "%q", reqs[i].Key)
		sameOrigin(k, reqs[i].Origin, a.First)
	}
	k.count(1, "group")
}

func txDead[Tx any](k *txKit[Tx]) {
	r := request("e")
	k.one(dedup.Fresh, r, k.ends(r, "letter", func(c dedup.Claim) dedup.Completion {
		return dead(c, "no items")
	}))
	k.count(1, "letter")
	a := k.meets(dedup.Dead, r)
	require.Equal(k, "no items", a.Reason)
	sameOrigin(k, r.Origin, a.First)
}

func txDeadOrigin[Tx any](k *txKit[Tx]) {
	copied := origin(900, 41)
	copied.Topic = "orders.by.another.way"
	group := []dedup.Request{request("dead"), request("done"), request("none"), request("plain")}
	_, err := k.call(group, func(tx Tx, answers []dedup.Answer) ([]dedup.Completion, error) {
		ends := []dedup.Completion{
			dead(group[2].Held(dedup.Token{}, answers[2]), "poison"),
			completion(group[1].Held(dedup.Token{}, answers[1])),
			dead(group[0].Held(dedup.Token{}, answers[0]), "poison"),
		}
		ends[0].First, ends[1].First, ends[2].First = dedup.Origin{}, copied, copied
		return ends, nil
	})
	require.NoError(k, err)
	sameOrigin(k, copied, k.meets(dedup.Dead, request("dead")).First)
	sameOrigin(k, request("done").Origin, k.meets(dedup.Done, request("done")).First)
	sameOrigin(k, request("none").Origin, k.meets(dedup.Dead, request("none")).First)
	sameOrigin(k, request("plain").Origin, k.meets(dedup.Done, request("plain")).First)
}

func txRetry[Tx any](k *txKit[Tx]) {
	move := func(c dedup.Claim) dedup.Completion { return moved(c, c.Position.Retry+1) }
	k.one(dedup.Fresh, at("e", 0, 0), k.ends(at("e", 0, 0), "0", move))
	k.meets(dedup.Rescheduled, at("e", 0, 0))
	k.one(dedup.Fresh, at("e", 0, 1), k.ends(at("e", 0, 1), "1", move))
	k.meets(dedup.Rescheduled, at("e", 0, 0))
	k.meets(dedup.Rescheduled, at("e", 0, 1))
	k.meets(dedup.Rescheduled, at("e", 1, 0)) // another generation
	why := errors.New("fails")
	_, err := k.call([]dedup.Request{at("e", 0, 2)}, k.fails(why))
	require.ErrorIs(k, err, why)
	k.meets(dedup.Rescheduled, at("e", 0, 1)) // as before
	a := k.one(dedup.Fresh, at("e", 0, 4), k.effect("ahead"))
	sameOrigin(k, request("e").Origin, a.First)
	k.meets(dedup.Done, at("e", 0, 2))
	k.meets(dedup.Done, at("e", 0, 4))
	k.count(1, "ahead")
}

func txSome[Tx any](k *txKit[Tx]) {
	group := []dedup.Request{request("a"), request("b"), request("c")}
	_, err := k.call(group, func(tx Tx, answers []dedup.Answer) ([]dedup.Completion, error) {
		return []dedup.Completion{
			dead(group[1].Held(dedup.Token{}, answers[1]), "why"),
			moved(group[2].Held(dedup.Token{}, answers[2]), 1),
		}, k.h.Exec(k.ctx, tx, "group")
	})
	require.NoError(k, err)
	answers, err := k.call(group, k.effect("again"))
	require.NoError(k, err)
	require.Equal(k, []dedup.Verdict{dedup.Done, dedup.Dead, dedup.Rescheduled}, verdicts(answers))
	k.count(0, "again")
}

// txForeign completes an event of another call, and one that is done: no record or effect of the
// call is kept.
func txForeign[Tx any](k *txKit[Tx]) {
	k.one(dedup.Fresh, request("b"), k.effect("before"))
	group := []dedup.Request{request("a"), request("b")}
	for _, other := range []dedup.Request{request("b"), request("c")} {
		_, err := k.call(group, func(tx Tx, answers []dedup.Answer) ([]dedup.Completion, error) {
			return []dedup.Completion{
				dead(group[0].Held(dedup.Token{}, answers[0]), "why"),
				dead(other.Held(dedup.Token{}, dedup.Answer{}), "why"),
			}, k.h.Exec(k.ctx, tx, "group")
		})
		require.Error(k, err, other.Key.ID)
		require.NotErrorIs(k, err, dedup.ErrUnavailable)
		k.count(0, "group")
		k.meets(dedup.Done, request("b"))
	}
	k.unmarked(request("a"))
	k.unmarked(request("c"))
}

func txOrder[Tx any](k *txKit[Tx]) {
	refused := func(want error, reqs ...dedup.Request) {
		k.Helper()
		answers := stale(len(reqs))
		err := k.s.ClaimTx(k.ctx, runLimit, reqs, answers,
			func(Tx) ([]dedup.Completion, error) { return nil, errNotExpected })
		require.ErrorIs(k, err, want)
		require.NotErrorIs(k, err, errNotExpected)
		require.NotErrorIs(k, err, dedup.ErrUnavailable)
		for i := range answers {
			require.Zero(k, answers[i].Verdict)
		}
	}
	refused(dedup.ErrOrder, request("b"), request("a"))
	refused(dedup.ErrOrder, request("a"), request("a"))
	refused(dedup.ErrKey, request("a\x00"))
	refused(dedup.ErrKey, request("\xff"))
	k.unmarked(request("a"))
	k.unmarked(request("b"))
}

func txKeys[Tx any](k *txKit[Tx]) {
	var reqs []dedup.Request
	for _, p := range awkward {
		for _, key := range []dedup.Key{{ID: p}, {Tenant: p, ID: "x"}, {Scope: p, ID: "x"},
			{Type: p, ID: "x"}} {
			reqs = append(reqs, dedup.Request{Key: key, Retention: retention,
				Origin: origin(0, len(reqs))})
		}
	}
	sorted(reqs)
	for _, want := range []dedup.Verdict{dedup.Fresh, dedup.Done} {
		answers, err := k.call(reqs, k.effect("keys"))
		require.NoError(k, err)
		for i, a := range answers {
			require.Equal(k, want, a.Verdict, "%+v", reqs[i].Key)
			sameOrigin(k, reqs[i].Origin, a.First)
		}
	}
	k.count(1, "keys")
}

func txApart[Tx any](k *txKit[Tx]) {
	k.one(dedup.Fresh, request("e"), k.effect("tx"))
	var a [1]dedup.Answer
	require.NoError(k, k.s.Claim(k.ctx, dedup.NewToken(), long, []dedup.Request{request("e")},
		a[:]))
	require.Equal(k, dedup.Fresh, a[0].Verdict)
	k.meets(dedup.Done, request("e"))
}

func txContext[Tx any](k *txKit[Tx]) {
	ctx, cancel := context.WithCancel(k.ctx)
	cancel()
	answers := stale(1)
	err := k.s.ClaimTx(ctx, runLimit, []dedup.Request{request("e")}, answers,
		func(Tx) ([]dedup.Completion, error) { return nil, errNotExpected })
	require.ErrorIs(k, err, context.Canceled)
	require.NotErrorIs(k, err, errNotExpected)
	require.Zero(k, answers[0].Verdict)

	ctx, cancel = context.WithCancel(k.ctx)
	err = k.s.ClaimTx(ctx, runLimit, []dedup.Request{request("e")}, answers,
		func(tx Tx) ([]dedup.Completion, error) {
			err := k.h.Exec(ctx, tx, "cut short")
			cancel()
			return nil, err
		})
	if err == nil { // fn had succeeded: a store may commit all or roll back all
		k.meets(dedup.Done, request("e"))
		k.count(1, "cut short")
		return
	}
	require.NotErrorIs(k, err, dedup.ErrTxEnded)
	if !errors.Is(err, dedup.ErrUnknownCommit) {
		k.count(0, "cut short")
		k.unmarked(request("e"))
	}
}

func txResult[Tx any](k *txKit[Tx]) {
	want := dedup.Result{Schema: 3, Data: []byte{'{', 0, 255, '}'}}
	k.one(dedup.Fresh, request("e"), k.ends(request("e"), "paid",
		func(c dedup.Claim) dedup.Completion {
			d := completion(c)
			d.Result = want
			return d
		}))
	require.Equal(k, want, k.meets(dedup.Done, request("e")).Result)
}

func txConflict[Tx any](k *txKit[Tx]) {
	for kind, p := range prints {
		k.conflicts(kind+" ", p[0], p[1])
	}
	// A group of events with different fingerprints.
	reqs := make([]dedup.Request, 20)
	for i := range reqs {
		reqs[i] = printed(numbered("many", i), dedup.Checksum([]byte{byte(i)}))
	}
	sorted(reqs)
	_, err := k.call(reqs, k.effect("many"))
	require.NoError(k, err)
	reqs[7].Fingerprint = dedup.Checksum([]byte("another"))
	reqs[8].Fingerprint = prints["keyed hash"][0]
	answers, err := k.call(reqs, k.fails(errNotExpected))
	require.NoError(k, err)
	for i, a := range answers {
		require.Equal(k, i == 7, a.Verdict == dedup.Conflict, "%d: %v", i, a.Verdict)
	}
}

func (k *txKit[Tx]) conflicts(prefix string, one, two dedup.Fingerprint) {
	r := request(prefix + "e")
	r.Fingerprint = one
	k.one(dedup.Fresh, r, k.effect(prefix+"one"))
	k.meets(dedup.Done, r)
	r.Fingerprint = two
	got := k.meets(dedup.Conflict, r)
	sameOrigin(k, r.Origin, got.First)
	require.Equal(k, dedup.Done.String(), got.Known.String(), "the answer to an equal copy")
	redriven := r
	redriven.Position.Generation = 1
	k.meets(dedup.Done, redriven) // the copy may be repaired, but the event is done
	r.Fingerprint = dedup.Fingerprint{}
	k.meets(dedup.Done, r)

	for known, end := range map[dedup.Verdict]func(*dedup.Completion){
		dedup.Dead:        func(d *dedup.Completion) { d.Dead = "poison" },
		dedup.Rescheduled: func(d *dedup.Completion) { d.Retry = 2 },
	} {
		r := request(prefix + known.String())
		r.Fingerprint = one
		k.one(dedup.Fresh, r, func(Tx, []dedup.Answer) ([]dedup.Completion, error) {
			d := completion(r.Held(dedup.Token{}, dedup.Answer{First: r.Origin}))
			end(&d)
			return []dedup.Completion{d}, nil
		})
		r.Fingerprint = two
		got := k.meets(dedup.Conflict, r)
		require.Equal(k, known.String(), got.Known.String(), "the answer to an equal copy")
		require.Equal(k, known == dedup.Dead, got.Reason == "poison", "a reason of a dead event")
		if r.Position.Retry = 2; known == dedup.Rescheduled { // it waits for this one
			require.Equal(k, dedup.Fresh.String(), k.meets(dedup.Conflict, r).Known.String())
		}
	}
}
