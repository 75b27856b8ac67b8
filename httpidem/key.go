package httpidem

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dunglas/httpsfv"

	"github.com/idem-go/idem/dedup"
)

const (
	// maxKey is the largest length of a key in characters, as in most APIs with such keys.
	maxKey = 255
	// maxKeyHeader bounds the header in bytes: a key with every character escaped, and parameters.
	maxKeyHeader = 1024
)

// Syntax is the accepted form of the header.
type Syntax uint8

const (
	// Lenient accepts a quoted string, as the Internet-Draft requires, and the bare key that most
	// clients send.
	Lenient Syntax = iota
	// Strict accepts a quoted string only: an Item of RFC 8941 with a String as the value.
	Strict
)

// clientError is a mistake of a client, as the text of the answer. Such texts are sentences, unlike
// errors for logs.
type clientError string

// Error is the text.
func (e clientError) Error() string { return string(e) }

// The invalid keys (H-01).
var (
	errKeyTwice = clientError(
		"The idempotency key came in more than one header line. Send it once.",
	)
	errKeyEmpty = clientError(
		"The idempotency key is empty. Send a UUID of your own for each operation, the same for " +
			"each retry of it.",
	)
	errKeyLong = clientError(
		fmt.Sprintf("The idempotency key is longer than %d characters. A UUID is enough.", maxKey),
	)
	errKeyString = clientError(
		`The idempotency key is not a valid quoted string (RFC 8941, section 3.3.3). Send it as ` +
			`"8e03978e-40d5-43dd-bc93-6894a57f9324", with printable ASCII characters between ` +
			`the quotes, and a backslash before each quote or backslash in it.`,
	)
	errKeyUnquote = clientError(
		`The idempotency key must be a quoted string (RFC 8941, section 3.3.3). Send it with ` +
			`its quotes, as "8e03978e-40d5-43dd-bc93-6894a57f9324".`,
	)
	errKeyBare = clientError(
		`The idempotency key has characters other than printable ASCII, or a quote that it does ` +
			`not begin with. Send a UUID.`,
	)
	errKeyComma = clientError(
		`The idempotency key has a comma, as if two header lines were joined. Send it once, and ` +
			`in quotes if the comma is a part of it.`,
	)
	errKeyUUID = clientError(
		"The idempotency key is not a UUID. Send one as 8e03978e-40d5-43dd-bc93-6894a57f9324: 32 " +
			"hexadecimal digits in groups of 8, 4, 4, 4 and 12.",
	)

	errKeyPlaceholder = clientError(
		"The idempotency key is a placeholder for a missing value, such as null, 0 or a UUID of " +
			"zeros only. Send a UUID of your own for each operation, the same for each retry of " +
			"it.",
	)
)

// parseKey reads the values of the header: one line, 1 to 255 printable ASCII characters when
// decoded. The errors are texts for the client.
func parseKey(values []string, syntax Syntax, uuidOnly bool) (string, error) {
	switch {
	case len(values) == 0:
		return "", errKeyEmpty
	// RFC 8941 joins lines, and a string that was cut in two would become one again
	case len(values) > 1:
		return "", errKeyTwice
	case len(values[0]) > maxKeyHeader:
		return "", errKeyLong
	}
	key, err := decodeKey(values[0], syntax)
	switch {
	case err != nil:
		return "", err
	case key == "":
		return "", errKeyEmpty
	case len(key) > maxKey:
		return "", errKeyLong
	}
	uuid, isUUID := canonicalUUID(key)
	switch {
	case isPlaceholder(key) || isPlaceholder(uuid):
		return "", errKeyPlaceholder
	case uuidOnly && !isUUID:
		return "", errKeyUUID
	case uuidOnly:
		return uuid, nil
	}
	return key, nil
}

// nilUUID is the Nil UUID (RFC 9562, section 5.9).
const nilUUID = "00000000-0000-0000-0000-000000000000"

// isPlaceholder reports whether a key is the text that a language prints for a missing value. All
// requests of such a program would share one key and get the answer to the first. Short or unlikely
// texts are valid keys.
func isPlaceholder(key string) bool {
	switch strings.ToLower(key) {
	case "null", "(null)", "nil", "<nil>", "none", "undefined", "nan", "[object object]", "0",
		nilUUID:
		return true
	}
	return false
}

func decodeKey(value string, syntax Syntax) (string, error) {
	bare := strings.Trim(value, " \t")
	switch {
	case bare == "":
		return "", errKeyEmpty
	case bare[0] == '"':
		return decodeQuoted(value)
	case syntax == Strict:
		return "", errKeyUnquote
	}
	for i := range len(bare) {
		switch c := bare[i]; {
		case c < ' ' || c > '~' || c == '"':
			return "", errKeyBare
		case c == ',': // proxies join header lines with it
			return "", errKeyComma
		}
	}
	return bare, nil
}

// decodeQuoted reads an Item with a String as the value. Parameters are ignored, but must be
// valid.
func decodeQuoted(value string) (string, error) {
	item, err := httpsfv.UnmarshalItem([]string{value})
	if err != nil {
		return "", errKeyString
	}
	key, ok := item.Value.(string)
	if !ok {
		return "", errKeyString
	}
	return key, nil
}

// canonicalUUID returns a UUID in the form of RFC 9562, in lower case. Accepted are either case,
// urn:uuid: in front (RFC 9562, section 4), braces, and no hyphens, which are the forms that common
// libraries read. Any version is accepted: only the randomness of the key matters.
func canonicalUUID(s string) (uuid string, ok bool) {
	const form, urn = 36, "urn:uuid:"
	s = strings.ToLower(s)
	switch {
	case len(s) == len(urn)+form && strings.HasPrefix(s, urn):
		s = s[len(urn):]
	case len(s) == form+2 && s[0] == '{' && s[len(s)-1] == '}':
		s = s[1 : len(s)-1]
	case len(s) == form-4:
		s = s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
	case len(s) != form:
		return "", false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return "", false
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return "", false
		}
	}
	return s, true
}

// isText reports whether a part of a key can be stored: valid UTF-8 without NUL.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// keyType is the type of all keys of requests. Method and route are no part of a key: the
// fingerprint detects a key that is used for another operation.
const keyType = "http"

// owner is the owner of a key: the same name in two tenants is two principals.
type owner struct{ tenant, principal string }

// storeKey returns the key of a request in the store. The key is readable there unless principal
// and key are too long together. A middleware has a principal in all requests, or in no request
// (H-12).
func storeKey(scope string, who owner, key string) dedup.Key {
	id := key
	if who.principal != "" {
		id = dedup.Join(who.principal, key)
	}
	if len(id) > dedup.MaxPart {
		id = dedup.Hash(who.principal, key)
	}
	return dedup.Key{Tenant: who.tenant, Scope: scope, Type: keyType, ID: id}
}
