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

// G-04: what else quotes values, and comes as text only: database/sql, encodings and databases that are not among our dependencies.
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
		"server reply 550 5.1.1":  &textproto.Error{Code: 550, Msg: "5.1.1 <" + canary + "@example.com>: Recipient address rejected"},
		"server reply 421":        &textproto.Error{Code: 421, Msg: canary},
		"malformed protocol text": textproto.ProtocolError("malformed MIME header: " + canary),
	} {
		require.Equal(t, "mail 7: "+want, safetext.Text(fmt.Errorf("mail 7: %w", err)))
	}
}

// The text is looked at up to a bound: a password whose '@' lies behind it is one all the same, however much is taken out before it.
func TestText_AddressCutShort_G04(t *testing.T) {
	text := safetext.Line(errors.New(`parsing "` + strings.Repeat("x", 4000) + `": in postgres://app:` + canary + strings.Repeat("s", 200) + "@db/x"))
	require.Equal(t, `parsing "…": in postgres`, text)
}
