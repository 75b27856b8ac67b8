package safetext_test

import (
	"errors"
	"fmt"
	"net/textproto"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/safetext"
)

// G-04: other texts that quote values, from database/sql, encodings and databases that are not
// dependencies.
func TestText_Quotes_G04(t *testing.T) {
	for text, want := range map[string]string{
		`sql: Scan error on column index 0, name "a": converting driver.Value type string ("` + canary + `") to a int: invalid syntax`: `sql: Scan error on column index 0, name "a": converting driver.Value type string to a int: invalid syntax`,
		`sql: Scan error on column index 0, name "a": sql/driver: couldn't convert "` + canary + `" into type bool`:                    `sql: Scan error on column index 0, name "a": sql/driver: couldn't convert … into type bool`,
		`proto: (line 1:16): invalid value for int32 field amount: "` + canary + `"`:                                                   "proto: (line 1:16)",
		`proto: syntax error (line 1:2): invalid value ` + canary:                                                                      "proto: syntax error (line 1:2)",
		"yaml: unmarshal errors:\n  line 1: cannot unmarshal !!str `" + canary + "` into int":                                          "yaml: unmarshal errors:\n  line 1: cannot unmarshal !!str into int",
		`ReadInt: unexpected character, error found in #10 byte of ...|{"amount":"` + canary + `"}|..., bigger context ...|x`:          "ReadInt: unexpected character, error found in #10 byte of …",
		`[E11000 duplicate key error collection: db.users index: email_1 dup key: { email: "` + canary + `" }]`:                        "[E11000 duplicate key error collection: db.users index: email_1 dup key",
		`Error 1366 (HY000): Incorrect integer value: '` + canary + `' for column 'amount' at row 1`:                                   "Error 1366 (HY000): Incorrect integer value: …",
		`Error 1292 (22007): Truncated incorrect DOUBLE value: '` + canary + `'`:                                                       "Error 1292 (22007): Truncated incorrect DOUBLE value: …",
		`mssql: Conversion failed when converting the varchar value '` + canary + `' to data type int.`:                                "mssql: Conversion failed when converting the varchar value to data type int.",
		`mssql: Cannot insert duplicate key in object 'dbo.u'. The duplicate key value is (` + canary + `).`:                           "mssql: Cannot insert duplicate key in object 'dbo.u'. The duplicate key value is (…)",
		"config {User:app Password:" + canary + " Host:h}":                                                                             "config {User:app Password:xxxxx Host:h}",
		"order 12: FEHLER: Eingabesyntax für Typ: »" + canary + "« (SQLSTATE 22P02), stop":                                             "order 12: SQLSTATE 22P02 (invalid_text_representation), stop",
		"order 12: エラー: 不正な入力構文です: \"" + canary + "\" (SQLSTATE 22P02)":                                                                "order 12: SQLSTATE 22P02 (invalid_text_representation)",
		"order 12: ERROR: no more for " + canary + " (SQLSTATE P0001)":                                                                 "order 12: SQLSTATE P0001 (raise_exception)",
		`order 12: ERROR: duplicate key value violates unique constraint "a_pkey" (SQLSTATE 23505)`:                                    `order 12: SQLSTATE 23505 (unique_violation), constraint "a_pkey"`,
	} {
		require.Equal(t, want, safetext.Text(errors.New(text)))
	}
	for want, err := range map[string]error{
		"server reply 550 5.1.1": &textproto.Error{
			Code: 550, Msg: "5.1.1 <" + canary + "@example.com>: Recipient address rejected",
		},
		"server reply 421":        &textproto.Error{Code: 421, Msg: canary},
		"malformed protocol text": textproto.ProtocolError("malformed MIME header: " + canary),
	} {
		require.Equal(t, "mail 7: "+want, safetext.Text(fmt.Errorf("mail 7: %w", err)))
	}
}

// The text is searched up to a bound. A password with its '@' beyond the bound is removed as well,
// however much was replaced before it.
func TestText_AddressCutShort_G04(t *testing.T) {
	text := safetext.Line(errors.New(`parsing "` + strings.Repeat("x", 4000) +
		`": in postgres://app:` + canary + strings.Repeat("s", 200) + "@db/x"))
	require.Equal(t, `parsing "…": in postgres`, text)
}

// G-04: well-known forms of keys, tokens and card numbers in free text.
func TestText_WellKnownSecrets_G04(t *testing.T) {
	// keeps secret scanners away from this file
	join := func(parts ...string) string { return strings.Join(parts, "") }
	for text, want := range map[string]string{
		"charge failed, api_key: " + canary:      "charge failed, api_key: xxxxx",
		"API-Key : " + canary + ", retry":        "API-Key : xxxxx, retry",
		"secretKey: '" + canary + " x' rejected": "secretKey: xxxxx rejected",
		"client_secret:" + canary:                "client_secret:xxxxx",
		"refused token: 0" + canary + "; gone":   "refused token: xxxxx; gone",

		"jwt " + join("eyJ", "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl") + " is old": "jwt xxxxx is old",

		"jwt " + join("eyJ", "hbGciOiJIUzI1NiJ9"):                      "jwt xxxxx",
		"no such key " + join("sk_", "live_", "51H8sWqLxCANARY"):       "no such key xxxxx",
		"no such key " + join("rk_", "test_", "51H8sWqLxCANARY") + ".": "no such key xxxxx.",
		join("AKIA", "IOSFODNN7EXAMPLE") + " may not":                  "xxxxx may not",
		join("gh", "p_", "0123456789abcdefCANARY") + ": 401":           "xxxxx: 401",
		join("xox", "b-", "1234567890-CANARY"):                         "xxxxx",

		"-----BEGIN RSA PRIVATE KEY-----\n" + canary + "\n-----END RSA PRIVATE KEY-----!": "xxxxx!",

		"-----BEGIN PRIVATE KEY-----\n" + canary:           "xxxxx",
		"card 4111111111111111 declined":                   "card xxxxx declined",
		"card 4111 1111 1111 1111 declined":                "card xxxxx declined",
		"card 5555-5555-5555-4444, exp 12/30":              "card xxxxx, exp 12/30",
		"amex:378282246310005":                             "amex:xxxxx",
		"card 4111111111111111 12/30 123":                  "card xxxxx 12/30 123",
		"paid 100 4111 1111 1111 1111 12 30":               "paid 100 xxxxx 12 30",
		"4111-1111-1111-1111 123 of 3782 822463 10005":     "xxxxx 123 of xxxxx",
		"map[Authorization:[Basic Q0FOQVJZOmE=]]":          "map[Authorization:[Basic xxxxx]]",
		"Authorization: Token 0123" + canary + ", next":    "Authorization: Token xxxxx, next",
		`{"authorization":"ApiKey 0123` + canary + `"}`:    `{"authorization":"ApiKey xxxxx"}`,
		"api-key=" + canary + "&x=1, secret_key=" + canary: "api-key=xxxxx&x=1, secret_key=xxxxx",

		"DefaultEndpointsProtocol=https;AccountKey=" + canary + ";Endpoint=x": "DefaultEndpointsProtocol=https;AccountKey=xxxxx;Endpoint=x",

		`{"secretKey":"` + canary + `","api-key" : "` + canary + `"}`: `{"secretKey":"xxxxx","api-key" : "xxxxx"}`,
		`{"password": 471147114711, "n": 1}`:                          `{"password": "xxxxx", "n": 1}`,
		fmt.Sprintf("%q", `{"password": "`+canary+`", "a": "b"}`):     `"{\"password\": \"xxxxx\", \"a\": \"b\"}"`,
		fmt.Sprintf("%q", `{"api_key":"`+canary+`\"x"}`):              `"{\"api_key\":\"xxxxx\"}"`,
		"open app:" + canary + "@tcp(db:3306)/x: refused":             "open app:xxxxx@tcp(db:3306)/x: refused",
	} {
		got := safetext.Text(errors.New(text))
		require.Equal(t, want, got)
	}
	// Texts that an operator needs stay.
	for _, text := range []string{
		// no check digit
		"invalid token: expired", "token: unexpected EOF", "no secret: look at the mount",
		"order 4111111111111112 is closed",
		"offset 1795395531000 of 1795395531001",
		"event 41111111-1111-4111-8111-111111111111 of order-4111111111111111",
		"id 00004111111111111111", "2026-11-23T01:02:03.123456789Z", "task-4711 failed",
		"key 12 is not there", "partition key: order 7",
		"offsets 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57", "counts 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20", "primary_key=orders_pkey", "sort key = 7",
	} {
		require.Equal(t, text, safetext.Text(errors.New(text)))
	}
}
