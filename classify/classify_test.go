package classify_test

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/classify"
)

var errPlain = errors.New("boom")

// requireMark checks the mark of an error that is wrapped, and that it is still in the tree.
func requireMark(t *testing.T, fn func(error) error, err error, want string) {
	t.Helper()
	for name, err := range map[string]error{
		"as it is": err,
		"wrapped":  fmt.Errorf("charge: %w", err),
		"joined":   errors.Join(errPlain, err),
	} {
		marked := fn(err)
		require.Equal(t, want, idem.ErrorMark(marked), "%s: %v", name, err)
		require.ErrorIs(t, marked, err, name)
	}
}

func TestSQL(t *testing.T) {
	for want, states := range map[string]string{
		"unavailable": "08000 08001 08003 08006 53000 53100 53200 53300 57P01 57P02 57P03 57P05 25006 58030",
		"permanent":   "22001 22003 22012 22P02 23502",
		"":            "08P01 2200H 23503 23505 23514 23P01 25001 40001 40P01 42501 42601 42P01 55P03 57014 57000 58P01 XX000 P0001 2 08",
	} {
		for _, state := range strings.Fields(states) {
			t.Run(state, func(t *testing.T) {
				requireMark(t, classify.SQL, &pgconn.PgError{Code: state}, want)
			})
		}
	}
	requireMark(t, classify.SQL, driver.ErrBadConn, "unavailable")
	requireMark(t, classify.SQL, errPlain, "")
	require.NoError(t, classify.SQL(nil))
}

// awsError and otherError have a status code as errors of SDKs have.
type awsError struct{ code int }

func (awsError) Error() string         { return "SDK" }
func (e awsError) HTTPStatusCode() int { return e.code }

// throttled is the answer of an AWS JSON API to a request above the rate.
type throttled struct{}

func (throttled) Error() string       { return "ThrottlingException: Rate exceeded" }
func (throttled) HTTPStatusCode() int { return http.StatusBadRequest }
func (throttled) ErrorCode() string   { return "ThrottlingException" }

type otherError struct{ code int }

func (otherError) Error() string     { return "SDK" }
func (e otherError) StatusCode() int { return e.code }

func TestHTTP(t *testing.T) {
	codes := map[string]string{
		"unavailable": "502 503 504",
		"permanent":   "400 405 406 410 411 413 414 415 416 417 422 431 451 501 505",
	}
	want := map[int]string{}
	for mark, list := range codes {
		for _, s := range strings.Fields(list) {
			code, err := strconv.Atoi(s)
			require.NoError(t, err)
			want[code] = mark
		}
	}
	for code := 400; code < 600; code++ {
		requireMark(t, classify.HTTP, classify.CheckResponse(&http.Response{StatusCode: code}), want[code])
		method := want[code]
		if code == http.StatusBadRequest { // AWS answers so to throttled requests and expired tokens
			method = ""
		}
		requireMark(t, classify.HTTP, awsError{code}, method)
		requireMark(t, classify.HTTP, otherError{code}, method)
	}
	requireMark(t, classify.HTTP, throttled{}, "")
	requireMark(t, classify.HTTP, errPlain, "")
	require.NoError(t, classify.HTTP(nil))
	for _, code := range []int{200, 204, 304, 399} {
		require.NoError(t, classify.CheckResponse(&http.Response{StatusCode: code}))
	}
}

func TestHTTP_RetryAfter(t *testing.T) {
	answer := func(code int, after string) error {
		return classify.CheckResponse(&http.Response{StatusCode: code, Header: http.Header{"Retry-After": {after}}})
	}
	requireMark(t, classify.HTTP, answer(429, "7"), "retry_after")
	require.ErrorContains(t, classify.HTTP(answer(429, "7")), "retry after 7s")
	requireMark(t, classify.HTTP, answer(503, "7"), "unavailable")
	for _, none := range []string{"", "-1", "soon", "0", "99999999999999999999", "Mon, 02 Jan 2006 15:04:05 GMT"} {
		requireMark(t, classify.HTTP, answer(429, none), "")
	}
	for _, absurd := range []string{"86401", "1798765432", "2147483647", "Fri, 01 Jan 2100 00:00:00 GMT"} {
		requireMark(t, classify.HTTP, answer(429, absurd), "retry_after")
		require.ErrorContains(t, classify.HTTP(answer(429, absurd)), "retry after 24h0m0s", absurd)
	}
	require.ErrorContains(t, classify.HTTP(answer(429, "86399")), "retry after 23h59m59s")
	in := time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)
	var status *classify.StatusError
	require.ErrorAs(t, answer(429, in), &status)
	require.InDelta(t, time.Minute.Seconds(), status.RetryAfter.Seconds(), 2)
	require.ErrorContains(t, status, "429 Too Many Requests")
}

// code and status have the methods of the types of google.golang.org/grpc. The module examples has
// a test with those.
type code uint32

type status struct{ c code }

func (s *status) Code() code { return s.c }

type grpcError struct{ s *status }

func (grpcError) Error() string         { return "rpc error" }
func (e grpcError) GRPCStatus() *status { return e.s }

// strange has the method, but not the type of its result.
type strange struct{}

func (strange) Error() string      { return "strange" }
func (strange) GRPCStatus() string { return "14" }

func TestGRPC(t *testing.T) {
	want := map[code]string{3: "permanent", 11: "permanent", 14: "unavailable", 15: "permanent"}
	for c := range code(17) {
		requireMark(t, classify.GRPC, grpcError{&status{c}}, want[c])
	}
	requireMark(t, classify.GRPC, strange{}, "")
	requireMark(t, classify.GRPC, errPlain, "")
	require.NoError(t, classify.GRPC(nil))
}

func TestFirst(t *testing.T) {
	both := classify.First(classify.SQL, classify.GRPC)
	requireMark(t, both, &pgconn.PgError{Code: "22001"}, "permanent")
	requireMark(t, both, grpcError{&status{14}}, "unavailable")
	requireMark(t, both, errPlain, "")
	require.NoError(t, both(nil))
	requireMark(t, classify.First(), errPlain, "")
}
