package dynamostore_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/dynamostore"
	"github.com/stretchr/testify/require"
)

// wire is between the SDK and the server. It may answer a request itself, or look at the answer of
// the server.
type wire struct {
	next   http.RoundTripper
	before func(verb, body string) *http.Response // nil: the server answers
	// request is before with the request
	request func(r *http.Request, body string) *http.Response
	after   func(verb, body string) error
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_ = r.Body.Close()
	_, verb, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if w.before != nil {
		if resp := w.before(verb, string(body)); resp != nil {
			resp.Request = r
			return resp, nil
		}
	}
	if w.request != nil {
		if resp := w.request(r, string(body)); resp != nil {
			resp.Request = r
			return resp, nil
		}
	}
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := w.next.RoundTrip(again)
	if err == nil && w.after != nil {
		if lost := w.after(verb, string(body)); lost != nil {
			_ = resp.Body.Close()
			return nil, lost
		}
	}
	return resp, err
}

// reply is an answer that no server gave.
func reply(status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}

// quick retries at once.
func quick(o *dynamodb.Options) {
	o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = 3
		o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return time.Millisecond, nil })
	})
}

// lossy drops the first answer to each request after the server has served it.
type lossy struct {
	mu   sync.Mutex
	seen map[string]bool
	lost int
}

func (l *lossy) after(verb, body string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[verb+body] {
		return nil
	}
	if l.seen == nil {
		l.seen = make(map[string]bool)
	}
	l.seen[verb+body] = true
	l.lost++
	return errors.New("connection reset by test")
}

func (l *lossy) wrap(next http.RoundTripper) http.RoundTripper {
	return &wire{next: next, after: l.after}
}

// the server did it, the answer was lost, the SDK repeats the request and finds its own token.
func TestLostAnswers(t *testing.T) {
	_, table := newTable(t)
	var l lossy
	s := dynamostore.New(connect(t, endpoint(t), l.wrap, quick), table)
	ctx := t.Context()
	fresh := func(id string, fence uint64) dedup.Claim {
		t.Helper()
		a, c := ask(t, s, time.Minute, request(id))
		require.Equal(t, dedup.Fresh, a.Verdict, id)
		require.Equal(t, fence, a.Fence, id)
		return c
	}
	c := fresh("done", 1)
	require.NoError(t, s.Renew(ctx, time.Minute, []dedup.Claim{c}))
	d := dedup.Completion{Claim: c, Retention: time.Hour, Result: dedup.Result{Schema: 1, Data: []byte("x")}}
	require.NoError(t, s.Complete(ctx, []dedup.Completion{d}))
	a, _ := ask(t, s, time.Minute, request("done"))
	require.Equal(t, dedup.Done, a.Verdict)
	require.Equal(t, "x", string(a.Result.Data))

	for id, end := range map[string]dedup.Completion{"dead": {Dead: "why"}, "moved": {Retry: 1}} {
		end.Claim, end.Retention = fresh(id, 1), time.Hour
		require.NoError(t, s.Complete(ctx, []dedup.Completion{end}), id)
	}
	back := dedup.Release{Claim: fresh("failed", 1), Outcome: dedup.Failed, Retention: time.Hour}
	require.NoError(t, s.Release(ctx, []dedup.Release{back}))
	a, c = ask(t, s, time.Minute, request("failed"))
	require.EqualValues(t, 1, a.Failures, "counted once")
	require.EqualValues(t, 2, a.Fence, "claimed once")
	require.NoError(t, s.Release(ctx, []dedup.Release{{Claim: c, Outcome: dedup.Unknown, Retention: time.Hour}}))
	a, _ = ask(t, s, time.Minute, request("failed"))
	require.Equal(t, dedup.Uncertain, a.Verdict)
	require.Zero(t, a.Takeovers, "its own first try is nobody to take over from")

	p, err := s.Reopen(ctx, request("dead").Key)
	require.NoError(t, err)
	require.Equal(t, dedup.Position{Generation: 1}, p)
	added, err := s.Import(ctx, []dedup.Imported{{Key: request("old").Key, Retention: time.Hour}})
	require.NoError(t, err)
	require.Equal(t, 1, added)
	require.NoError(t, s.Discard(ctx, request("bad").Key, time.Hour, "why"))
	require.Greater(t, l.lost, 15, "the wire did nothing")
}

// a take-over with a lost answer is one take-over.
func TestLostTakeover(t *testing.T) {
	_, table := newTable(t)
	var l lossy
	now := newClock()
	s := dynamostore.New(connect(t, endpoint(t), l.wrap, quick), table, dynamostore.Clock(now.read))
	ask(t, s, time.Minute, request("e"))
	now.pass(time.Minute)
	a, _ := ask(t, s, time.Minute, request("e"))
	require.Equal(t, dedup.Uncertain, a.Verdict)
	require.EqualValues(t, 1, a.Takeovers)
	require.EqualValues(t, 2, a.Fence)
}

// verbs calls each verb of a store once.
func verbs(t *testing.T, s *dynamostore.Store) map[string]error {
	t.Helper()
	ctx, r := t.Context(), request("e")
	answers := []dedup.Answer{{Verdict: dedup.Done}}
	c := r.Held(dedup.NewToken(), dedup.Answer{Fence: 1})
	errs := map[string]error{"claim": s.Claim(ctx, c.Token, time.Minute, []dedup.Request{r}, answers)}
	if errs["claim"] != nil {
		require.Zero(t, answers[0], "an error and an answer (R-19)")
	}
	errs["look"] = s.Look(ctx, []dedup.Request{r}, answers)
	if errs["look"] != nil {
		require.Zero(t, answers[0], "an error and an answer (R-19)")
	}
	errs["renew"] = s.Renew(ctx, time.Minute, []dedup.Claim{c})
	errs["complete"] = s.Complete(ctx, []dedup.Completion{{Claim: c, Retention: time.Hour}})
	errs["release"] = s.Release(ctx, []dedup.Release{{Claim: c, Retention: time.Hour}})
	_, errs["reopen"] = s.Reopen(ctx, r.Key)
	_, errs["inspect"] = s.Inspect(ctx, r.Key)
	errs["forget"] = s.Forget(ctx, r.Key)
	errs["discard"] = s.Discard(ctx, r.Key, time.Hour, "why")
	_, errs["import"] = s.Import(ctx, []dedup.Imported{{Key: r.Key, Retention: time.Hour}})
	_, errs["check"] = s.Check(ctx)
	errs["ping"] = s.Ping(ctx)
	return errs
}

// an error of the server itself, or a missing answer, is an outage and never a verdict.
func TestAnswersThatAreNone(t *testing.T) {
	amazon := func(code string) string {
		return `{"__type":"com.amazonaws.dynamodb.v20120810#` + code + `","message":"test"}`
	}
	for name, answer := range map[string]func() *http.Response{
		"throttled":   func() *http.Response { return reply(400, amazon("ThrottlingException")) },
		"provisioned": func() *http.Response { return reply(400, amazon("ProvisionedThroughputExceededException")) },
		"limit":       func() *http.Response { return reply(400, amazon("RequestLimitExceeded")) },
		"no table":    func() *http.Response { return reply(400, amazon("ResourceNotFoundException")) },
		"no rights":   func() *http.Response { return reply(400, amazon("AccessDeniedException")) },
		"expired":     func() *http.Response { return reply(400, amazon("ExpiredTokenException")) },
		"validation":  func() *http.Response { return reply(400, amazon("ValidationException")) },
		"internal":    func() *http.Response { return reply(500, amazon("InternalServerError")) },
		"gateway":     func() *http.Response { return reply(502, "<html>bad gateway</html>") },
		"cut":         func() *http.Response { return reply(200, `{"Item": {"key": {"S"`) },
	} {
		t.Run(name, func(t *testing.T) {
			wrap := func(next http.RoundTripper) http.RoundTripper {
				return &wire{next: next, before: func(string, string) *http.Response { return answer() }}
			}
			s := dynamostore.New(connect(t, "http://127.0.0.1:1", wrap, quick), "t")
			for verb, err := range verbs(t, s) {
				require.ErrorIs(t, err, dedup.ErrUnavailable, verb)
				require.NotErrorIs(t, err, dedup.ErrClaimLost, verb)
				require.NotErrorIs(t, err, dedup.ErrNotFound, verb)
				require.NotErrorIs(t, err, dedup.ErrNotDead, verb)
				_, setup := errors.AsType[*dedup.SetupError](err)
				require.Equal(t, name == "no table" || name == "no rights", setup, "%s: what no waiting mends: %v", verb, err)
				if name == "no rights" {
					require.Equal(t, verb == "forget", strings.Contains(err.Error(), "dynamodb:DeleteItem"), "%s: %v", verb, err)
				}
			}
		})
	}
}

// if one key of many fails, the call fails. A repeat with the same token finds the claims of
// the other keys.
func TestPartOfBatchFails(t *testing.T) {
	_, table := newTable(t)
	var mu sync.Mutex
	broken := true
	wrap := func(next http.RoundTripper) http.RoundTripper {
		return &wire{next: next, before: func(_, body string) *http.Response {
			mu.Lock()
			defer mu.Unlock()
			if broken && strings.Contains(body, ":e7\"") {
				return reply(400, `{"__type":"com.amazon.coral.availability#ThrottlingException","message":"test"}`)
			}
			return nil
		}}
	}
	s := dynamostore.New(connect(t, endpoint(t), wrap, quick), table)
	reqs := make([]dedup.Request, 9)
	for i := range reqs {
		reqs[i] = request("e" + string(rune('1'+i)))
	}
	token, answers := dedup.NewToken(), make([]dedup.Answer, len(reqs))
	require.ErrorIs(t, s.Claim(t.Context(), token, time.Minute, reqs, answers), dedup.ErrUnavailable)
	for _, a := range answers {
		require.Zero(t, a)
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	require.NoError(t, s.Claim(t.Context(), token, time.Minute, reqs, answers))
	for i, a := range answers {
		require.Equal(t, dedup.Fresh, a.Verdict, reqs[i].Key.ID)
		require.EqualValues(t, 1, a.Fence)
	}
}

// H-22: every read is consistent, and every write has a condition.
func TestReadsAreConsistent(t *testing.T) {
	_, table := newTable(t)
	var mu sync.Mutex
	reads, writes := 0, 0
	wrap := func(next http.RoundTripper) http.RoundTripper {
		return &wire{next: next, before: func(verb, body string) *http.Response {
			mu.Lock()
			defer mu.Unlock()
			switch verb {
			case "GetItem":
				reads++
				if !strings.Contains(body, `"ConsistentRead":true`) {
					t.Errorf("a read that may be of the past: %s", body)
				}
			case "PutItem", "UpdateItem", "DeleteItem":
				writes++
				if !strings.Contains(body, `"ConditionExpression"`) || !strings.Contains(body, `"ReturnValuesOnConditionCheckFailure":"ALL_OLD"`) {
					t.Errorf("%s without a condition: %s", verb, body)
				}
			case "DescribeTable", "DescribeTimeToLive":
			default:
				t.Errorf("unexpected verb %s", verb)
			}
			return nil
		}}
	}
	client := connect(t, endpoint(t), wrap, func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} })
	verbs(t, dynamostore.New(client, table))
	require.GreaterOrEqual(t, reads, 5)
	require.GreaterOrEqual(t, writes, 4)
}
