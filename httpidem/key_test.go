package httpidem

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"
)

// vector is a case of the working group's tests of structured fields.
type vector struct {
	Name     string
	Raw      []string
	MustFail bool `json:"must_fail"`
	Expected []any
}

// The string vectors, in both modes, except for the rules of keys: one line, 1 to 255 characters
// (H-01).
func TestParseKey_Vectors_H01(t *testing.T) {
	for _, file := range []string{"string.json", "string-generated.json"} {
		data, err := os.ReadFile("testdata/structured-field-tests/" + file)
		require.NoError(t, err)
		var vectors []vector
		require.NoError(t, json.Unmarshal(data, &vectors))
		require.NotEmpty(t, vectors)
		for _, v := range vectors {
			key, err := parseKey(v.Raw, Strict, false)
			want := ""
			if !v.MustFail {
				want = v.Expected[0].(string)
			}
			switch {
			case v.MustFail || len(v.Raw) > 1 || want == "" || len(want) > maxKey:
				require.Error(t, err, v.Name)
			default:
				require.NoError(t, err, v.Name)
				require.Equal(t, want, key, v.Name)
			}
			if strings.HasPrefix(v.Raw[0], `"`) {
				lenient, lenientErr := parseKey(v.Raw, Lenient, false)
				require.Equal(t, err, lenientErr, v.Name)
				require.Equal(t, key, lenient, v.Name)
			}
		}
	}
}

func TestParseKey_H01(t *testing.T) {
	const uuid = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	long := strings.Repeat("k", maxKey)
	for name, c := range map[string]struct {
		values   []string
		strict   string // "": refused
		lenient  string
		uuidOnly bool
	}{
		"none":                    {values: nil},
		"empty":                   {values: []string{""}},
		"spaces":                  {values: []string{"  \t "}},
		"empty string":            {values: []string{`""`}},
		"quoted":                  {values: []string{`"k"`}, strict: "k", lenient: "k"},
		"spaces around":           {values: []string{`  "k" `}, strict: "k", lenient: "k"},
		"spaces inside":           {values: []string{`" k "`}, strict: " k ", lenient: " k "},
		"parameters":              {values: []string{`"k";a=1;b`}, strict: "k", lenient: "k"},
		"bad parameters":          {values: []string{`"k";=`}},
		"more behind":             {values: []string{`"k" x`}},
		"list":                    {values: []string{`"a", "b"`}},
		"two lines":               {values: []string{`"a"`, `"b"`}},
		"two equal lines":         {values: []string{"a", "a"}},
		"one string in two lines": {values: []string{`"a`, `b"`}},
		"escapes": {values: []string{`"a\"b\\c"`}, strict: `a"b\c`,
			lenient: `a"b\c`},
		"bad escape":               {values: []string{`"a\b"`}},
		"no end":                   {values: []string{`"a`}},
		"bare":                     {values: []string{" abc "}, lenient: "abc"},
		"bare with spaces":         {values: []string{"a b"}, lenient: "a b"},
		"bare with a semicolon":    {values: []string{"a;b=c"}, lenient: "a;b=c"},
		"bare with a quote":        {values: []string{`a"b`}},
		"bare with a control byte": {values: []string{"a\x01b"}},
		"bare with a tab":          {values: []string{"a\tb"}},
		"bare with DEL":            {values: []string{"a\x7f"}},
		"bare, not ASCII":          {values: []string{"sch\u00f6n"}},
		"token":                    {values: []string{"*abc"}, lenient: "*abc"},
		"bytes":                    {values: []string{":YWJj:"}, lenient: ":YWJj:"},
		"longest": {values: []string{`"` + long + `"`}, strict: long,
			lenient: long},
		"longest, escaped": {values: []string{`"` + strings.Repeat(`\"`, maxKey) + `"`},
			strict: strings.Repeat(`"`, maxKey), lenient: strings.Repeat(`"`, maxKey)},
		"too long":            {values: []string{`"` + long + `k"`}},
		"longest, bare":       {values: []string{long}, lenient: long},
		"too long, bare":      {values: []string{long + "k"}},
		"10 kB":               {values: []string{strings.Repeat("k", 10_000)}},
		"10 kB of parameters": {values: []string{`"k"` + strings.Repeat(";a", 5_000)}},
		"UUID": {values: []string{`"` + uuid + `"`}, uuidOnly: true,
			strict: uuid, lenient: uuid},
		"UUID, upper case": {values: []string{`"` + strings.ToUpper(uuid) + `"`},
			uuidOnly: true, strict: uuid, lenient: uuid},
		"UUID, bare, two lines": {values: []string{uuid + "," + uuid}, uuidOnly: true},
		"UUID, bare":            {values: []string{uuid}, uuidOnly: true, lenient: uuid},
		"no UUID":               {values: []string{`"k"`}, uuidOnly: true},
		"UUID in braces": {values: []string{`"{` + uuid + `}"`}, uuidOnly: true,
			strict: uuid, lenient: uuid},
		"UUID without hyphens": {values: []string{`"` + strings.ReplaceAll(uuid, "-", "") + `"`},
			uuidOnly: true, strict: uuid, lenient: uuid},
		"UUID as a URN": {values: []string{`"urn:uuid:` + uuid + `"`}, uuidOnly: true,
			strict: uuid, lenient: uuid},
		"UUID as a URN, upper": {values: []string{`"URN:UUID:` + strings.ToUpper(uuid) + `"`},
			uuidOnly: true, strict: uuid, lenient: uuid},
		"UUID, one brace":         {values: []string{`"{` + uuid + `"`}, uuidOnly: true},
		"UUID, other braces":      {values: []string{`"(` + uuid + `)"`}, uuidOnly: true},
		"UUID in braces as a URN": {values: []string{`"urn:uuid:{` + uuid + `}"`}, uuidOnly: true},
		"UUID, other URN":         {values: []string{`"urn:oid::` + uuid + `"`}, uuidOnly: true},
		"UUID, half a hyphen": {values: []string{`"8e03978e40d543ddbc936894a57f-324"`},
			uuidOnly: true},
		"forms stay as they are": {values: []string{`"{` + uuid + `}"`}, strict: "{" + uuid + "}",
			lenient: "{" + uuid + "}"},
		"bare, two lines joined": {values: []string{uuid + ", " + uuid}},
		"bare with a comma":      {values: []string{"a,b"}},
		"bare, comma at the end": {values: []string{"a,"}},
		"quoted with a comma":    {values: []string{`"a,b"`}, strict: "a,b", lenient: "a,b"},
		"UUID with other hyphens": {
			values: []string{`"8e03978e40d5-43dd-bc93-6894-a57f9324"`}, uuidOnly: true,
		},
		"UUID with a G": {
			values: []string{`"ge03978e-40d5-43dd-bc93-6894a57f9324"`}, uuidOnly: true,
		},
		"case is kept otherwise": {values: []string{`"ABC"`}, strict: "ABC", lenient: "ABC"},
	} {
		t.Run(name, func(t *testing.T) {
			for syntax, want := range map[Syntax]string{Strict: c.strict, Lenient: c.lenient} {
				key, err := parseKey(c.values, syntax, c.uuidOnly)
				require.Equal(t, want, key)
				require.Equal(t, want == "", err != nil, "%v", err)
			}
		})
	}
}

// Values of programs that have no key: all their requests would share one (H-01).
func TestParseKey_Placeholders_H01(t *testing.T) {
	const null = "00000000-0000-0000-0000-000000000000"
	for _, value := range []string{
		"null", "NULL", "(null)", "nil", "<nil>", "none", "None", "undefined", "Undefined", "NaN",
		"0", "[object Object]",
		null, "{" + null + "}", "urn:uuid:" + null, "00000000000000000000000000000000",
	} {
		for _, uuidOnly := range []bool{true, false} {
			for _, line := range []string{value, `"` + value + `"`, ` "` + value + `" `} {
				_, err := parseKey([]string{line}, Lenient, uuidOnly)
				require.Error(t, err, line)
				if _, isUUID := canonicalUUID(value); !uuidOnly || isUUID {
					require.ErrorIs(t, err, errKeyPlaceholder, line)
				}
			}
		}
	}
	for _, value := range []string{
		"1", "01", "00", "0-0", "-", "-1", "true", "{}", "ffffffff-ffff-ffff-ffff-ffffffffffff",
		"nullable", "none-7", "null-7", "order-0", "-7", "true-1", "ffff",
		"00000000-0000-0000-0000-000000000001",
	} {
		key, err := parseKey([]string{value}, Lenient, false)
		require.NoError(t, err, value)
		require.Equal(t, value, key)
	}
}

// Every error contains advice for the client (H-01).
func TestParseKey_ErrorsAreSentences_H01(t *testing.T) {
	for _, err := range []error{errKeyTwice, errKeyEmpty, errKeyLong, errKeyString, errKeyUnquote,
		errKeyBare, errKeyUUID, errKeyComma, errKeyPlaceholder} {
		require.Regexp(t, `^The idempotency key .*\.$`, err.Error())
	}
}

func FuzzParseKey_H01(f *testing.F) {
	for _, s := range []string{
		"", `"`, `""`, `"a"`, `"a\"b\\"`, `"a";x=1`, "bare", " bare ", `b"c`, "\x00", "\"\x7f\"",
		"8e03978e-40d5-43dd-bc93-6894a57f9324", `"a", "b"`, "\t\"a\"", "k, k", "null",
		"{8E03978E-40D5-43DD-BC93-6894A57F9324}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		strict, strictErr := parseKey([]string{value}, Strict, false)
		lenient, lenientErr := parseKey([]string{value}, Lenient, false)
		if strictErr == nil {
			require.NoError(t, lenientErr, "what is right is right in both modes")
			require.Equal(t, strict, lenient)
		}
		if lenientErr != nil {
			require.Empty(t, lenient)
			return
		}
		require.True(t, lenient != "" && len(lenient) <= maxKey)
		require.False(t,
			strings.ContainsFunc(lenient, func(c rune) bool { return c < ' ' || c > '~' }))
		quoted, err := httpsfv.Marshal(httpsfv.NewItem(lenient))
		require.NoError(t, err)
		again, err := parseKey([]string{quoted}, Strict, false)
		require.NoError(t, err)
		require.Equal(t, lenient, again)
	})
}
