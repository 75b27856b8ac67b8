package storetest

import (
	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// The fingerprints of one content under an older and a newer secret, and that of another content.
var olderPrint, newerPrint, otherPrint = keyedHash(1), keyedHash(2), keyedHash(3)

// secondly is a request of a worker with two secrets.
func secondly(id string, first, second dedup.Fingerprint) dedup.Request {
	r := printed(id, first)
	r.SecondFingerprint = second
	return r
}

// workers are the workers that may run beside each other while a secret changes, in each step.
var workers = [][][2]dedup.Fingerprint{
	{{olderPrint}, {olderPrint, newerPrint}},
	{{olderPrint, newerPrint}, {newerPrint, olderPrint}},
	{{newerPrint, olderPrint}, {newerPrint}},
}

// secondNoConflict passes an event in each state from one worker to the other, in each step.
func secondNoConflict(k *kit) {
	for step, pair := range workers {
		for i, one := range pair {
			other := pair[1-i]
			id := func(name string) string { return numbered(name, 2*step+i) }
			claim := func(name string) dedup.Claim {
				_, c := k.get(dedup.Fresh, long, secondly(id(name), one[0], one[1]))
				return c
			}
			claim("busy")
			k.complete(completion(claim("done")))
			k.complete(dead(claim("dead"), "poison"))
			k.release(release(claim("open"), dedup.Failed))
			k.release(release(claim("doubtful"), dedup.Unknown))
			meets := func(v dedup.Verdict, name string) {
				k.meets(v, secondly(id(name), other[0], other[1]))
			}
			meets(dedup.Busy, "busy")
			meets(dedup.Done, "done")
			meets(dedup.Dead, "dead")
			// The other worker handles the event, and the first one gets a copy.
			for name, v := range map[string]dedup.Verdict{
				"open": dedup.Fresh, "doubtful": dedup.Uncertain,
			} {
				_, c := k.get(v, long, secondly(id(name), other[0], other[1]))
				k.complete(completion(c))
				meets(dedup.Done, name)
				k.meets(dedup.Done, secondly(id(name), one[0], one[1]))
			}
		}
	}
}

func secondConflict(k *kit) {
	k.get(dedup.Fresh, long, printed("e", olderPrint))
	k.meets(dedup.Busy, secondly("e", newerPrint, olderPrint))
	k.meets(dedup.Conflict, secondly("e", newerPrint, otherPrint))
	k.meets(dedup.Conflict, secondly("e", otherPrint, newerPrint))

	// A new record keeps the first fingerprint only.
	k.get(dedup.Fresh, long, secondly("new", newerPrint, olderPrint))
	k.meets(dedup.Busy, printed("new", newerPrint))
	k.meets(dedup.Conflict, printed("new", olderPrint))

	// Without a first fingerprint, or with checksums, the second does not count.
	k.meets(dedup.Busy, secondly("new", dedup.Fingerprint{}, otherPrint))
	sums := prints["checksum"]
	k.get(dedup.Fresh, long, printed("sum", sums[0]))
	k.meets(dedup.Conflict, secondly("sum", sums[1], sums[0]))
	k.meets(dedup.Conflict, secondly("sum", sums[1], olderPrint))
	k.meets(dedup.Busy, secondly("sum", sums[0], olderPrint))

	// A batch has both kinds of requests, and of answers.
	reqs := sorted([]dedup.Request{
		secondly("e", newerPrint, olderPrint), printed("sum", sums[1]), request("plain"),
		secondly("new", otherPrint, olderPrint), secondly("other", newerPrint, olderPrint),
	})
	answers := make([]dedup.Answer, len(reqs))
	require.NoError(k, k.s.Claim(k.ctx, dedup.NewToken(), long, reqs, answers))
	require.Equal(k, []dedup.Verdict{dedup.Busy, dedup.Conflict, dedup.Fresh, dedup.Fresh,
		dedup.Conflict}, verdicts(answers))
}

func lookSecond(k *kit) {
	k.looker(k.s)
	if k.h.lacks(Fingerprints) {
		k.Skip("missing in the harness: fingerprints")
	}
	_, c := k.get(dedup.Fresh, long, printed("e", olderPrint))
	for range 2 { // first the event is claimed, then done
		require.NotEqual(k, dedup.Conflict,
			k.look(secondly("e", newerPrint, olderPrint))[0].Verdict)
		k.shows(dedup.Conflict, secondly("e", newerPrint, otherPrint))
		k.complete(completion(c))
	}
}

func txSecond[Tx any](k *txKit[Tx]) {
	for step, pair := range workers {
		for i, one := range pair {
			id, other := numbered("e", 2*step+i), pair[1-i]
			k.one(dedup.Fresh, secondly(id, one[0], one[1]), k.effect(id))
			k.meets(dedup.Done, secondly(id, other[0], other[1]))
			k.meets(dedup.Conflict, secondly(id, otherPrint, dedup.Fingerprint{}))
		}
	}
	k.one(dedup.Fresh, printed("old", olderPrint), k.effect("old"))
	k.meets(dedup.Conflict, secondly("old", newerPrint, otherPrint))
	k.one(dedup.Fresh, secondly("new", newerPrint, olderPrint), k.effect("new"))
	k.meets(dedup.Conflict, printed("new", olderPrint))
}

func txLookSecond[Tx any](k *txKit[Tx]) {
	if lacking(k.h.Missing, Fingerprints) {
		k.Skip("missing in the harness: fingerprints")
	}
	k.one(dedup.Fresh, printed("e", olderPrint), k.effect("e"))
	k.lookAs(dedup.Done, secondly("e", newerPrint, olderPrint))
	k.lookAs(dedup.Conflict, secondly("e", newerPrint, otherPrint))
}
