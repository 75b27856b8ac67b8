package safetext_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/safetext"
)

const canary = "CANARY7f3a"

func into[T any](text string) error {
	var v T
	return json.Unmarshal([]byte(text), &v)
}

func second[T any](_ T, err error) error { return err }

type amount struct {
	Amount int       `json:"amount"`
	At     time.Time `json:"at"`
	Addr   netip.Addr
	Big    *big.Int
	Quoted int `json:"quoted,string"`
	Num    json.Number
}

// decoders lists every way in which the standard library quotes unreadable input.
func decoders() map[string]error {
	return map[string]error{
		"string for number":  into[amount](`{"amount":"` + canary + `"}`),
		"number literal":     into[amount](`{"amount":777123777123777123777123}`),
		"fraction":           into[amount](`{"amount":777123.5}`),
		"time":               into[amount](`{"at":"` + canary + `"}`),
		"time, extra":        into[amount](`{"at":"2026-01-02T03:04:05Z` + canary + `"}`),
		"address":            into[amount](`{"Addr":"` + canary + `"}`),
		"big":                into[amount](`{"Big":"` + canary + `"}`),
		"quoted":             into[amount](`{"quoted":"` + canary + `"}`),
		"quoted, bare":       into[amount](`{"quoted":` + "777123777123" + `}`),
		"json.Number":        into[amount](`{"Num":"` + canary + `"}`),
		"bare word":          into[amount](canary),
		"unknown field":      unknownField(),
		"atoi":               second(strconv.Atoi(canary)),
		"atoi, quotes":       second(strconv.Atoi(`a"` + canary + `"b`)),
		"range":              second(strconv.ParseInt("777123777123777123777123", 10, 64)),
		"bool":               second(strconv.ParseBool(canary)),
		"float":              second(strconv.ParseFloat(canary, 64)),
		"time.Parse":         second(time.Parse(time.RFC3339, canary)),
		"time.ParseDuration": second(time.ParseDuration(canary)),
		"duration, unit":     second(time.ParseDuration("5" + canary)),
		"zone":               second(time.LoadLocation(canary)),
		"url":                second(url.Parse(strings.ToLower("HTTP") + "://h:" + canary + "/")),
		"url escape":         second(url.Parse(strings.ToLower("HTTP") + "://h/%zz" + canary)),
		"netip":              second(netip.ParseAddr(canary)),
		"netip zone":         second(netip.ParseAddr("1.2.3.4%" + canary)),
		"prefix":             second(netip.ParsePrefix(canary)),
		"addrport":           second(netip.ParseAddrPort(canary)),
		"mac":                second(net.ParseMAC(canary)),
		"cidr":               func() error { _, _, err := net.ParseCIDR(canary); return err }(),
		"hostport": func() error {
			_, _, err := net.SplitHostPort(canary + ":::")
			return err
		}(),
		"hex":    second(hex.DecodeString("zz" + canary)),
		"base64": second(base64.StdEncoding.DecodeString("!" + canary)),
	}
}

func unknownField() error {
	d := json.NewDecoder(strings.NewReader(`{"` + canary + `":1}`))
	d.DisallowUnknownFields()
	return d.Decode(&amount{})
}

func leaks(text string) bool {
	return strings.Contains(text, "ANARY") || strings.Contains(text, "777123")
}

// G-04: a decoder's error is described by its kind: alone, wrapped, joined and as text.
func TestText_DecodersQuoteNothing_G04(t *testing.T) {
	for name, err := range decoders() {
		require.Error(t, err, name)
		for how, err := range map[string]error{
			"alone":     err,
			"wrapped":   fmt.Errorf("charge declined: %w", err),
			"twice":     fmt.Errorf("charge declined: %w", fmt.Errorf("order 12: %w", err)),
			"joined":    errors.Join(errors.New("charge declined"), err),
			"two":       fmt.Errorf("charge declined: %w and %w", io.EOF, err),
			"flattened": errors.New("charge declined: " + err.Error()),
		} {
			text := safetext.Text(err)
			require.False(t, leaks(text), "%s, %s: %s", name, how, text)
			require.NotEmpty(t, text)
			if how != "alone" {
				require.Contains(t, text, "charge declined", "the words of the program stay")
			}
			strict := safetext.Strict(err)
			require.False(t, leaks(strict), "%s, %s, strict: %s", name, how, strict)
			require.NotEmpty(t, strict)
		}
	}
}

func TestText_KeepsWhatHelps(t *testing.T) {
	for want, err := range map[string]error{
		"json: cannot unmarshal string at byte 22 into Go struct field amount.amount of type int": into[amount](`{"amount":"` + canary + `"}`),
		"strconv.Atoi: invalid syntax": second(strconv.Atoi(canary)),
		"strconv.ParseInt: value out of range": second(
			strconv.ParseInt("777123777123777123777123", 10, 64),
		),
		`parsing time as "2006-01-02": month out of range`: second(
			time.Parse(time.DateOnly, "2026-13-01"),
		),
		"invalid JSON at byte 1: invalid character looking for beginning of value": into[amount](canary),
		"order 12 of customer \"c-1\": card declined": errors.New(
			"order 12 of customer \"c-1\": card declined",
		),
		"dial tcp 127.0.0.1:5432: connection refused": errors.New(
			"dial tcp 127.0.0.1:5432: connection refused",
		),
	} {
		require.Equal(t, want, safetext.Text(err))
	}
	require.Empty(t, safetext.Text(nil))
	require.Empty(t, safetext.Strict(nil))
}

func pg(code, message string) error {
	return &pgconn.PgError{
		Severity: "ERROR", Code: code, Message: message, Detail: "Key (email)=(" + canary + ")",
		Where: canary,
	}
}

// localised is an error of lib/pq, which returns its fields by their protocol code.
type localised struct{ fields map[byte]string }

func (e localised) Error() string     { return "pq: " + e.fields['M'] }
func (e localised) SQLState() string  { return e.fields['C'] }
func (e localised) Get(k byte) string { return e.fields[k] }

// G-04: Postgres quotes values in its messages, in any language. The SQLSTATE and names of the
// schema stay.
func TestText_Postgres_G04(t *testing.T) {
	for want, err := range map[string]error{
		`SQLSTATE 23505 (unique_violation), constraint "orders_pkey"`: pg("23505",
			`duplicate key value violates unique constraint "orders_pkey"`),
		`SQLSTATE 23505 (unique_violation)`: pg("23505",
			`doppelter Schlüsselwert verletzt Unique-Constraint »`+canary+`«`),
		`SQLSTATE 23502 (not_null_violation), column "email", table "users"`: pg("23502",
			`null value in column "email" of relation "users" violates not-null constraint`),
		`SQLSTATE 23503 (foreign_key_violation), table "a", constraint "a_b_fkey"`: pg("23503",
			`insert or update on table "a" violates foreign key constraint "a_b_fkey"`),
		`SQLSTATE 22P02 (invalid_text_representation)`: pg("22P02",
			`invalid input syntax for type integer: "`+canary+`"`),
		`SQLSTATE 22P02 (invalid_text_representation) `: nil,
		`SQLSTATE P0001 (raise_exception)`:              pg("P0001", "no more for "+canary),
		`SQLSTATE 22XYZ (data_exception)`:               pg("22XYZ", canary),
		`SQLSTATE ?`:                                    pg("22\n"+canary, canary),
		`SQLSTATE 57014 (query_canceled), statement timeout`: pg("57014",
			"canceling statement due to statement timeout"),
		`SQLSTATE 42P01 (undefined_table), table "orders"`: pg("42P01",
			`relation "orders" does not exist`),
		`SQLSTATE 42P01 (undefined_table)`: pg("42P01",
			`relation "`+canary+` orders" does not exist`),
		`SQLSTATE 23505 (unique_violation), constraint "bestellung_pkey", table "bestellung"`: localised{map[byte]string{
			'C': "23505", 'M': "doppelter Schlüsselwert: " + canary, 'n': "bestellung_pkey",
			't': "bestellung", 'D': canary,
		}},
	} {
		if err == nil {
			continue
		}
		require.Equal(t, want, safetext.Text(err))
		require.Equal(t, "order 12: "+want, safetext.Text(fmt.Errorf("order 12: %w", err)))
		// repeats the text
		flat := safetext.Text(fmt.Errorf("order 12: %w, again: %s", err, err.Error()))
		require.Equal(t, "order 12: "+want+", again: "+want, flat)
	}
	var pe *pgconn.PgError
	err := pg("22P02", `invalid input syntax for type integer: "`+canary+`"`)
	require.ErrorAs(t, err, &pe)
	own := fmt.Errorf("the database says %s (%w)", pe.Message, err)
	require.False(t, leaks(safetext.Text(own)), safetext.Text(own))
	own = fmt.Errorf("%s: %s", pe.Message, pe.Detail) // text only
	require.False(t, leaks(safetext.Text(own)), safetext.Text(own))
}

type fromRedis string

func (e fromRedis) Error() string { return string(e) }
func (fromRedis) RedisError()     {}

type fromAPI struct{ code, message string }

func (e fromAPI) Error() string        { return "api error " + e.code + ": " + e.message }
func (e fromAPI) ErrorCode() string    { return e.code }
func (e fromAPI) ErrorMessage() string { return e.message }

func TestText_OtherServers_G04(t *testing.T) {
	var _ redis.Error = fromRedis("")
	for want, err := range map[string]error{
		"redis: nil": redis.Nil,
		"WRONGTYPE Operation against a key holding the wrong kind of value": fromRedis(
			"WRONGTYPE Operation against a key holding the wrong kind of value",
		),
		"ERR unknown command": fromRedis("ERR unknown command '" + canary +
			"', with args beginning with: '" + canary + "'"),
		"ERR The user executing the script can't run this command": fromRedis(
			"ERR The user executing the script can't run this command or subcommand script: " + canary),
		"ERR The user executing the script can't access at least one of the keys": fromRedis(
			"ERR The user executing the script can't access at least one of the keys mentioned in " +
				"the command arguments script: " + canary),
		"ERR ACL failure in script": fromRedis("ERR ACL failure in script: User " + canary +
			" has no permissions to access the '" + canary + "' key script: " + canary),
		"NOPERM User … has no permissions to run the 'hset' command": fromRedis(
			"NOPERM User " + canary + " has no permissions to run the 'hset' command"),
		"NOPERM this user has no permissions to run the 'cluster|slots' command": fromRedis(
			"NOPERM this user has no permissions to run the 'cluster|slots' command"),
		"ERR ACL failure in script: User … has no permissions to run the 'json.set' command": fromRedis(
			"ERR ACL failure in script: User " + canary +
				" has no permissions to run the 'json.set' command script: " + canary),
		"NOPERM User": fromRedis("NOPERM User " + canary + " has no permissions to run the '" + canary +
			" x' command"),
		"NOPERM this user has no permissions": fromRedis(
			"NOPERM this user has no permissions to access the '" + canary + "' key"),
		"ERR from Redis":            fromRedis("ERR " + canary),
		"Redis error":               fromRedis("x" + canary),
		"MOVED 3999 127.0.0.1:6381": fromRedis("MOVED 3999 127.0.0.1:6381"),
		"API error ValidationException": fromAPI{"ValidationException", "value " + canary +
			" is too long"},
		"API error without a code": fromAPI{"x " + canary, canary},
	} {
		require.Equal(t, want, safetext.Text(err))
		require.Equal(t, "mail 7: "+want+"; stop",
			safetext.Text(fmt.Errorf("mail 7: %w; stop", err)))
	}
}

// G-04: addresses contain passwords, and those of requests contain personal data.
func TestText_Addresses_G04(t *testing.T) {
	for text, want := range map[string]string{
		"connect to postgres://app:" + canary + "@db:5432/x?sslmode=disable: no": "connect to postgres://app:xxxxx@db:5432/x?sslmode=disable: no",

		"connect to redis://:" + canary + "@cache:6379/0":                  "connect to redis://:xxxxx@cache:6379/0",
		"connect to redis://" + canary + "@cache:6379/0":                   "connect to redis://xxxxx@cache:6379/0",
		"connect to postgres://app:p@ss/" + canary + "@db/x":               "connect to postgres://app:xxxxx@db/x",
		"cannot parse `host=db user=app password=" + canary + " dbname=x`": "cannot parse `host=db user=app password=xxxxx dbname=x`",
		"cannot parse `password='a b\\'" + canary + "' host=db`":           "cannot parse `password=xxxxx host=db`",
		"db?user=a&PGPASSWORD=" + canary + "&x=1":                          "db?user=a&PGPASSWORD=xxxxx&x=1",
		`{"user":"a","password":"` + canary + `"}`:                         `{"user":"a","password":"xxxxx"}`,
		"Authorization: Bearer " + canary + ".x.y":                         "Authorization: Bearer xxxxx",
		"Authorization: Basic " + canary + "==":                            "Authorization: Basic xxxxx",
	} {
		require.Equal(t, want, safetext.Text(errors.New(text)))
	}
	request := &url.Error{
		Op: "Post", URL: "https://api.example/users/" + canary + "?q=" + canary, Err: io.EOF,
	}
	require.Equal(t, `mail: Post "https://api.example": EOF`,
		safetext.Text(fmt.Errorf("mail: %w", request)))
	deep := &url.Error{
		Op: "Get", URL: "https://api.example/" + canary, Err: second(strconv.Atoi(canary)),
	}
	require.Equal(t, `Get "https://api.example": strconv.Atoi: invalid syntax`, safetext.Text(deep))
	for _, dsn := range []string{"postgres://u:" + canary + "/x@h:1/d", "redis://:" + canary +
		"%zz@h", "redis://u:[" + canary + "@h:x"} {
		_, err := pgconn.ParseConfig(dsn)
		if err != nil {
			require.False(t, leaks(safetext.Text(err)), safetext.Text(err))
		}
		if _, err = redis.ParseURL(dsn); err != nil {
			require.False(t, leaks(safetext.Text(err)), safetext.Text(err))
		}
	}
}
