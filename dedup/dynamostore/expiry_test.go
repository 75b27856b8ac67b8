package dynamostore_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/dynamostore"
	"github.com/stretchr/testify/require"
)

// lateTable is a table that deletes no expired item.
func lateTable(t *testing.T) (*dynamodb.Client, string) {
	client, table := newTable(t)
	_, err := client.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{TableName: &table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("expires"), Enabled: aws.Bool(false)}})
	require.NoError(t, err)
	return client, table
}

// raw is the item as the table has it, and its expiry.
func raw(t testing.TB, client *dynamodb.Client, table, key string) (map[string]types.AttributeValue, time.Time) {
	t.Helper()
	out, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{"key": &types.AttributeValueMemberS{Value: key}}})
	require.NoError(t, err)
	n, ok := out.Item["expires"].(*types.AttributeValueMemberN)
	if !ok {
		return out.Item, time.Time{}
	}
	at, err := strconv.ParseInt(n.Value, 10, 64)
	require.NoError(t, err)
	return out.Item, time.Unix(at, 0)
}

func anyAge(id string) dedup.Request {
	r := request(id)
	r.AnyAge = true
	return r
}

// H-22: an item past its retention counts as absent, for every verb, although DynamoDB has not
// deleted it yet.
func TestLateDeletion(t *testing.T) {
	client, table := lateTable(t)
	now := newClock()
	s := dynamostore.New(client, table, dynamostore.Clock(now.read))
	ctx := t.Context()
	ends := map[string]func(dedup.Claim) error{
		"done": func(c dedup.Claim) error {
			return s.Complete(ctx, []dedup.Completion{{Claim: c, Retention: time.Hour, Result: dedup.Result{Schema: 1, Data: []byte("x")}}})
		},
		"dead": func(c dedup.Claim) error {
			return s.Complete(ctx, []dedup.Completion{{Claim: c, Retention: time.Hour, Dead: "poison"}})
		},
		"moved": func(c dedup.Claim) error {
			return s.Complete(ctx, []dedup.Completion{{Claim: c, Retention: time.Hour, Retry: 3}})
		},
		"doubtful": func(c dedup.Claim) error {
			return s.Release(ctx, []dedup.Release{{Claim: c, Retention: time.Hour, Outcome: dedup.Unknown}})
		},
	}
	for state, end := range ends {
		for _, verb := range []string{"claim", "look", "inspect", "forget", "reopen", "discard", "import"} {
			_, c := ask(t, s, time.Minute, anyAge(state+" "+verb))
			require.NoError(t, end(c))
		}
	}
	now.pass(time.Hour) // the margin is not over
	for state := range ends {
		records, err := s.Inspect(ctx, anyAge(state+" claim").Key)
		require.NoError(t, err)
		require.Len(t, records, 1)
	}
	now.pass(dynamostore.MarginOf(time.Hour) + 2*time.Second)
	for state := range ends {
		it, _ := raw(t, client, table, anyAge(state+" claim").Key.String())
		require.NotEmpty(t, it, "the item is still there, else this tests nothing")
		a, _ := ask(t, s, time.Minute, anyAge(state+" claim"))
		require.Equal(t, dedup.Fresh, a.Verdict, state)
		require.EqualValues(t, 1, a.Fence)
		it, _ = raw(t, client, table, anyAge(state+" claim").Key.String())
		require.NotContains(t, it, "result", "nothing is left of the old item")
		require.NotContains(t, it, "doubt")
		unknown(t, s, state)
	}
}

// unknown requires every verb but Claim to find no record.
func unknown(t *testing.T, s *dynamostore.Store, state string) {
	t.Helper()
	answers := make([]dedup.Answer, 1)
	require.NoError(t, s.Look(t.Context(), []dedup.Request{anyAge(state + " look")}, answers))
	require.Zero(t, answers[0], state)
	records, err := s.Inspect(t.Context(), anyAge(state+" inspect").Key)
	require.NoError(t, err)
	require.Empty(t, records, state)
	require.ErrorIs(t, s.Forget(t.Context(), anyAge(state+" forget").Key), dedup.ErrNotFound, state)
	_, err = s.Reopen(t.Context(), anyAge(state+" reopen").Key)
	require.ErrorIs(t, err, dedup.ErrNotDead, state)
	require.NoError(t, s.Discard(t.Context(), anyAge(state+" discard").Key, time.Hour, "why"), state)
	added, err := s.Import(t.Context(), []dedup.Imported{{Key: anyAge(state + " import").Key, Retention: time.Hour}})
	require.NoError(t, err)
	require.Equal(t, 1, added, state)
}

// H-22: each item has the time from when DynamoDB may delete it, and that of a claim is far away: it must not vanish while it is held.
func TestTimeToLive(t *testing.T) {
	client, table := newTable(t)
	s := dynamostore.New(client, table)
	began := time.Now()
	r := request("e")
	r.Retention = 48 * time.Hour
	key := r.Key.String()
	within := func(d time.Duration) {
		t.Helper()
		_, at := raw(t, client, table, key)
		require.WithinRange(t, at, began.Add(d), time.Now().Add(d+2*time.Second))
	}
	_, c := ask(t, s, time.Minute, r)
	within(72*time.Hour + time.Minute)
	require.NoError(t, s.Renew(t.Context(), time.Hour, []dedup.Claim{c}))
	within(73 * time.Hour)
	require.NoError(t, s.Complete(t.Context(), []dedup.Completion{{Claim: c, Retention: 100 * time.Hour}}))
	within(101 * time.Hour)
	out, err := client.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{TableName: &table})
	require.NoError(t, err)
	require.Equal(t, "expires", *out.TimeToLiveDescription.AttributeName)
}

// Rule 8: an event that the store may have forgotten is not new. A store that is younger than its
// retention has forgotten no event.
func TestTooOld(t *testing.T) {
	client, table := lateTable(t)
	now := newClock()
	s := dynamostore.New(client, table, dynamostore.Clock(now.read))
	const week = 7 * 24 * time.Hour
	dated := func(id string, age time.Duration) dedup.Request {
		r := request(id)
		r.Retention, r.Origin.Time = week, now.read().Add(-age)
		return r
	}
	verdict := func(s *dynamostore.Store, r dedup.Request) dedup.Verdict {
		t.Helper()
		looked := make([]dedup.Answer, 1)
		require.NoError(t, s.Look(t.Context(), []dedup.Request{r}, looked))
		a, c := ask(t, s, time.Minute, r)
		if a.Verdict.Held() {
			require.Zero(t, looked[0].Verdict)
			require.NoError(t, s.Complete(t.Context(), []dedup.Completion{{Claim: c, Retention: 3 * week}}))
		} else {
			require.Equal(t, looked[0].Verdict, a.Verdict)
		}
		return a.Verdict
	}
	require.Equal(t, dedup.Fresh, verdict(s, dated("backlog", 2*week)), "the store is new")
	now.pass(week + time.Hour)
	other := dynamostore.New(client, table, dynamostore.Clock(now.read)) // the birth is in the table
	for _, s := range []*dynamostore.Store{s, other} {
		require.Equal(t, dedup.TooOld, verdict(s, dated("old", 2*week)))
		require.Equal(t, dedup.Done, verdict(s, dated("backlog", 2*week)), "known is known")
	}
	require.Equal(t, dedup.Fresh, verdict(s, dated("not so old", week-2*time.Hour)))
	r := dated("any age", 2*week)
	r.AnyAge = true
	require.Equal(t, dedup.Fresh, verdict(s, r))
	r = dated("later attempt", 2*week)
	r.Position.Retry = 1
	require.Equal(t, dedup.Fresh, verdict(s, r))
	r = dated("no time", 0)
	r.Origin.Time = time.Time{}
	require.Equal(t, dedup.Fresh, verdict(s, r))
	r = dated("other scope", 2*week)
	r.Key.Scope = "new"
	require.Equal(t, dedup.Fresh, verdict(s, r))
}

// Rule 8: a look writes nothing, also in a scope that the table does not know. It asks for a birth
// only for an event with an age, and remembers only a birth that is there.
func TestLookWritesNothing_Rule8(t *testing.T) {
	_, table := newTable(t)
	sent := make(map[string]int)
	count := func(next http.RoundTripper) http.RoundTripper {
		return &wire{next: next, before: func(verb, _ string) *http.Response { sent[verb]++; return nil }}
	}
	now := newClock()
	s := dynamostore.New(connect(t, endpoint(t), count, quick), table, dynamostore.Clock(now.read))
	old := func() dedup.Request {
		r := request("old")
		r.Origin.Time = now.read().Add(-2 * r.Retention)
		return r
	}
	looks := func(r dedup.Request, want dedup.Verdict, reads int) {
		t.Helper()
		clear(sent)
		a := make([]dedup.Answer, 1)
		require.NoError(t, s.Look(t.Context(), []dedup.Request{r}, a))
		require.Equal(t, want, a[0].Verdict)
		require.Equal(t, map[string]int{"GetItem": reads}, sent)
	}
	looks(anyAge("new"), 0, 1)
	looks(old(), 0, 2)
	looks(old(), 0, 2)
	ask(t, dynamostore.New(connect(t, endpoint(t), nil), table, dynamostore.Clock(now.read)), time.Minute, request("other"))
	now.pass(2 * time.Hour)
	looks(anyAge("new"), 0, 1)
	looks(old(), dedup.TooOld, 2)
	looks(old(), dedup.TooOld, 1)
}

// Rule 8: a running process gives an emptied table the birth of its scope back. Otherwise the next
// process would set a new one, and handle again what was handled in between and has expired.
func TestBirthAfterTheTableWasEmptied_Rule8(t *testing.T) {
	client, table := newTable(t)
	now := newClock()
	s := dynamostore.New(client, table, dynamostore.Clock(now.read))
	dated := func(id string, age time.Duration) dedup.Request {
		r := request(id)
		r.Origin.Time = now.read().Add(-age)
		return r
	}
	meets := func(s *dynamostore.Store, want dedup.Verdict, r dedup.Request) {
		t.Helper()
		a, _ := ask(t, s, time.Minute, r)
		require.Equal(t, want, a.Verdict)
	}
	const born = "born:orders"
	meets(s, dedup.Fresh, dated("before", 0))
	before, _ := raw(t, client, table, born)
	now.pass(5 * time.Hour)
	meets(s, dedup.Fresh, dated("later", 0))
	_, err := client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &table,
		Key: map[string]types.AttributeValue{"key": &types.AttributeValueMemberS{Value: born}}})
	require.NoError(t, err)
	now.pass(dynamostore.BirthAge - time.Second)
	meets(s, dedup.Fresh, dated("soon", 0))
	after, _ := raw(t, client, table, born)
	require.Empty(t, after, "no request more")

	now.pass(time.Second)
	looked := make([]dedup.Answer, 1)
	old := dated("handled and expired", 2*time.Hour)
	require.NoError(t, s.Look(t.Context(), []dedup.Request{old}, looked))
	require.Equal(t, dedup.TooOld, looked[0].Verdict)
	after, _ = raw(t, client, table, born)
	require.Empty(t, after, "a look writes nothing")
	meets(s, dedup.Fresh, dated("now", 0))
	after, _ = raw(t, client, table, born)
	require.Equal(t, before, after)
	meets(dynamostore.New(client, table, dynamostore.Clock(now.read)), dedup.TooOld, old)
}

// Rule 8: the partition with the birth of a scope is throttled or silent. Claims and looks go on with the
// remembered birth. One caller in ten minutes asks for the birth, and does not wait long.
func TestKnownBirthNeedsNoTable_Rule8(t *testing.T) {
	_, table := newTable(t)
	for name, answer := range map[string]func(*http.Request) *http.Response{
		"throttled": func(*http.Request) *http.Response {
			return reply(400, `{"__type":"com.amazon.coral.availability#ThrottlingException","message":"test"}`)
		},
		"silent": func(r *http.Request) *http.Response { <-r.Context().Done(); return reply(500, "") },
	} {
		t.Run(name, func(t *testing.T) {
			var down atomic.Bool
			var asked atomic.Int64
			wrap := func(next http.RoundTripper) http.RoundTripper {
				return &wire{next: next, request: func(r *http.Request, body string) *http.Response {
					if !down.Load() || !strings.Contains(body, `"born:orders"`) {
						return nil
					}
					asked.Add(1)
					return answer(r)
				}}
			}
			now := newClock()
			once := func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }
			s := dynamostore.New(connect(t, endpoint(t), wrap, once), table, dynamostore.Clock(now.read))
			claims := func(id string, wantAsked int64) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), dedup.DefaultStoreTimeout)
				defer cancel()
				a := make([]dedup.Answer, 1)
				reqs := []dedup.Request{request(name + " " + id)}
				require.NoError(t, s.Claim(ctx, dedup.NewToken(), time.Minute, reqs, a))
				require.Equal(t, dedup.Fresh, a[0].Verdict)
				require.Equal(t, wantAsked, asked.Load())
			}
			claims("before", 0)
			down.Store(true)
			now.pass(dynamostore.BirthAge)
			claims("first", 1)
			claims("soon", 1)
			now.pass(dynamostore.BirthAge)
			old := request(name + " old")
			old.Origin.Time = now.read().Add(-time.Hour)
			require.NoError(t, s.Look(t.Context(), []dedup.Request{old}, make([]dedup.Answer, 1)))
			claims("after a look", 2)
		})
	}
}

// H-22: an item has 400 KB. The longest result fits beside the longest values of all other
// attributes. A longer result is the caller's mistake.
func TestItemLimit(t *testing.T) {
	client, table := newTable(t)
	s := dynamostore.New(client, table)
	part := strings.Repeat("é", dedup.MaxPart/2)
	r := dedup.Request{Key: dedup.Key{Tenant: part, Scope: part, Type: part, ID: part}, Retention: time.Hour,
		Fingerprint: dedup.Fingerprint{1}, AnyAge: true,
		Origin: dedup.Origin{Topic: strings.Repeat("t", 249), Partition: 1<<31 - 1, Offset: 1<<63 - 1, Time: time.Now()}}
	_, c := ask(t, s, time.Minute, r)
	end := func(n int) error {
		d := dedup.Completion{Claim: c, Retention: time.Hour, Result: dedup.Result{Schema: 1<<32 - 1, Data: make([]byte, n)}}
		return s.Complete(t.Context(), []dedup.Completion{d})
	}
	err := end(s.MaxResult() + 1)
	require.ErrorContains(t, err, "393217 bytes")
	require.NotErrorIs(t, err, dedup.ErrUnavailable, "it will never be taken")
	require.NotErrorIs(t, err, dedup.ErrClaimLost)
	a, _ := ask(t, s, time.Minute, r)
	require.Equal(t, dedup.Busy, a.Verdict, "still held")
	err = end(s.MaxResult())
	for range 3 { // half a megabyte on a busy machine: a connection that breaks is no verdict, and the call may be repeated
		if !errors.Is(err, dedup.ErrUnavailable) {
			break
		}
		t.Log(err)
		err = end(s.MaxResult())
	}
	require.NoError(t, err)
	a, _ = ask(t, s, time.Minute, r)
	require.Equal(t, dedup.Done, a.Verdict)
	require.Len(t, a.Result.Data, s.MaxResult())
}

// Rule 35, R-15: an item that this release cannot read is no answer.
func TestDamagedItems(t *testing.T) {
	client, table := newTable(t)
	s := dynamostore.New(client, table)
	_, c := ask(t, s, time.Minute, request("e"))
	good, _ := raw(t, client, table, request("e").Key.String())
	n := func(v string) types.AttributeValue { return &types.AttributeValueMemberN{Value: v} }
	text := func(v string) types.AttributeValue { return &types.AttributeValueMemberS{Value: v} }
	for name, damage := range map[string]func(it map[string]types.AttributeValue){
		"version":     func(it map[string]types.AttributeValue) { it["version"] = n("2") },
		"no version":  func(it map[string]types.AttributeValue) { delete(it, "version") },
		"no token":    func(it map[string]types.AttributeValue) { delete(it, "token") },
		"short token": func(it map[string]types.AttributeValue) { it["token"] = &types.AttributeValueMemberB{Value: []byte{1}} },
		"state":       func(it map[string]types.AttributeValue) { it["state"] = text("other") },
		"no state":    func(it map[string]types.AttributeValue) { delete(it, "state") },
		"no lease":    func(it map[string]types.AttributeValue) { delete(it, "lease") },
		"no expiry":   func(it map[string]types.AttributeValue) { delete(it, "expires") },
		"kind":        func(it map[string]types.AttributeValue) { it["fence"] = text("1") },
		"negative":    func(it map[string]types.AttributeValue) { it["failures"] = n("-1") },
		"fraction":    func(it map[string]types.AttributeValue) { it["rev"] = n("1.5") },
		"partition":   func(it map[string]types.AttributeValue) { it["partition"] = n("4294967296") },
		"doubt":       func(it map[string]types.AttributeValue) { it["doubt"] = text("yes") },
		"fingerprint": func(it map[string]types.AttributeValue) {
			it["fingerprint"] = &types.AttributeValueMemberB{Value: []byte{1}}
		},
		"reason":         func(it map[string]types.AttributeValue) { it["reason"] = n("1") },
		"retention":      func(it map[string]types.AttributeValue) { it["retention"] = n("99999999999999") },
		"of a scope":     func(it map[string]types.AttributeValue) { clear(it); it["born"] = n("1") },
		"nothing at all": func(it map[string]types.AttributeValue) { clear(it) },
	} {
		t.Run(name, func(t *testing.T) {
			it := make(map[string]types.AttributeValue)
			for k, v := range good {
				it[k] = v
			}
			damage(it)
			it["key"] = good["key"]
			_, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: it})
			require.NoError(t, err)
			answers := make([]dedup.Answer, 1)
			require.ErrorIs(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, []dedup.Request{request("e")}, answers), dedup.ErrUnavailable)
			require.Zero(t, answers[0])
			require.ErrorIs(t, s.Look(t.Context(), []dedup.Request{request("e")}, answers), dedup.ErrUnavailable)
			_, err = s.Inspect(t.Context(), c.Key)
			require.ErrorIs(t, err, dedup.ErrUnavailable)
		})
	}
}
