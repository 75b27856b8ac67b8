package pgstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// manyKinds returns a group with one request of each kind, in another order than their verdicts,
// and the verdict of each after prepare.
func manyKinds(prefix string) (reqs []dedup.Request, want []dedup.Verdict) {
	add := func(name string, v dedup.Verdict, change func(*dedup.Request)) {
		r := request(prefix + name)
		if change != nil {
			change(&r)
		}
		reqs, want = append(reqs, r), append(want, v)
	}
	add("a done", dedup.Done, nil)
	add("b new", dedup.Fresh, nil)
	add("c dead", dedup.Dead, nil)
	add("d moved", dedup.Rescheduled, nil)
	add("e waits", dedup.Fresh, func(r *dedup.Request) { r.Position.Retry = 1 })
	add("f conflict", dedup.Conflict, func(r *dedup.Request) { r.Fingerprint = dedup.Fingerprint{2} })
	add("g new", dedup.Fresh, func(r *dedup.Request) { r.Origin.Topic = "other" })
	add("h done", dedup.Done, func(r *dedup.Request) { r.Origin.Topic = "another" })
	return reqs, want
}

// endsOf returns the ends of the requests of manyKinds at the first time.
func endsOf(reqs []dedup.Request, t dedup.Token, answers []dedup.Answer) (first []dedup.Completion) {
	for i, r := range reqs {
		d := dedup.Completion{Claim: r.Held(t, answers[i]), Retention: retention}
		switch i {
		case 0, 7:
			d.Result = dedup.Result{Schema: 1, Data: []byte(r.Key.ID)}
		case 2:
			d.Dead = "poison"
		case 3, 4:
			d.Retry = 1
		case 1, 6:
			continue
		}
		first = append(first, d)
	}
	return first
}

// asFirst are the requests of manyKinds as they come first: those for rows that exist then.
func asFirst(reqs []dedup.Request) []dedup.Request {
	first := slices.Clone(reqs)
	for i := range first {
		first[i].Position, first[i].Origin.Topic = dedup.Position{}, "payments"
		if i == 5 {
			first[i].Fingerprint = dedup.Fingerprint{1}
		}
	}
	return first
}

func requireKinds(t *testing.T, reqs []dedup.Request, answers []dedup.Answer, want []dedup.Verdict) {
	t.Helper()
	for i, a := range answers {
		require.Equal(t, want[i].String(), a.Verdict.String(), reqs[i].Key.ID)
	}
	require.Equal(t, reqs[7].Key.ID, string(answers[7].Result.Data))
	require.Equal(t, reqs[0].Key.ID, string(answers[0].Result.Data))
	require.Equal(t, "payments", answers[7].First.Topic, "where the record came from, not the copy")
	require.Equal(t, "poison", answers[2].Reason)
	require.EqualValues(t, 2, answers[4].Fence)
}

// After a group of duplicates the next one begins by looking, and after one without it does not. The answers are alike.
func TestLookingFirstAnswersTheSame(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) { lookingFirst(t, mode) })
	}
}

func lookingFirst(t *testing.T, mode pgx.QueryExecMode) {
	t.Helper()
	t.Parallel()
	s, _ := newStore(t, inMode(mode))
	known, answers := batch(20, 0), make([]dedup.Answer, 20)
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, known, answers, plain))
	for _, looks := range []bool{false, true} {
		reqs, want := manyKinds(map[bool]string{false: "0 ", true: "1 "}[looks])
		first, answers := asFirst(reqs), make([]dedup.Answer, len(reqs))
		existing := slices.Concat(first[:1], first[2:6], first[7:])
		require.NoError(t, s.ClaimTx(t.Context(), time.Minute, existing, answers[:6],
			func(pgx.Tx) ([]dedup.Completion, error) {
				return endsOf(first, dedup.Token{}, make([]dedup.Answer, 8)), nil
			}))
		if looks {
			require.NoError(t, s.ClaimTx(t.Context(), time.Minute, known, make([]dedup.Answer, 20), never(t)))
		}
		require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers, plain))
		requireKinds(t, reqs, answers, want)
		for i, v := range want {
			if v == dedup.Fresh {
				want[i] = dedup.Done
			}
		}
		require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers, never(t)))
		for i, a := range answers {
			require.Equal(t, want[i].String(), a.Verdict.String())
		}
	}
}

// The same for claims.
func TestLookingFirstAnswersTheSameForClaims(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) { lookingFirstForClaims(t, mode) })
	}
}

func lookingFirstForClaims(t *testing.T, mode pgx.QueryExecMode) {
	t.Helper()
	t.Parallel()
	s, pool := newStore(t, inMode(mode))
	claim := func(s *pgstore.Store, reqs []dedup.Request) (dedup.Token, []dedup.Answer) {
		token, answers := dedup.NewToken(), make([]dedup.Answer, len(reqs))
		require.NoError(t, s.Claim(t.Context(), token, time.Minute, reqs, answers))
		return token, answers
	}
	known := batch(20, 0)
	claim(s, known)
	for _, looks := range []bool{false, true} {
		reqs, want := manyKinds(map[bool]string{false: "0 ", true: "1 "}[looks])
		first := asFirst(reqs)
		token, answers := claim(s, slices.Concat(first[:1], first[2:6], first[7:]))
		all := slices.Concat(answers[:1], make([]dedup.Answer, 1), answers[1:5], make([]dedup.Answer, 1), answers[5:])
		require.NoError(t, s.Complete(t.Context(), endsOf(first, token, all)))
		if looks {
			claim(s, known) // busy
		} else {
			s = pgstore.New(pool)
		}
		again := dedup.NewToken()
		for range 2 { // a repeat gets the same answer
			answers = make([]dedup.Answer, len(reqs))
			require.NoError(t, s.Claim(t.Context(), again, time.Minute, reqs, answers))
			requireKinds(t, reqs, answers, want)
		}
	}
}
