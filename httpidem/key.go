package httpidem

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dunglas/httpsfv"
)

const (
	// maxKey is how many characters a key may have: what most APIs with such keys allow.
	maxKey = 255
	// maxKeyHeader is how many bytes of a header are looked at: a key of which each character is escaped, and parameters.
	maxKeyHeader = 1024
)

// The mistakes of a client, told in the words that it is answered with (H-01).
var (
	errKeyTwice   = errors.New("The idempotency key came in more than one header line. Send it once.")
	errKeyEmpty   = errors.New("The idempotency key is empty. Send a UUID of your own for each operation, the same for each retry of it.")
	errKeyLong    = fmt.Errorf("The idempotency key is longer than %d characters. A UUID is enough.", maxKey)
	errKeyString  = errors.New(`The idempotency key is no valid quoted string (RFC 8941, section 3.3.3). Send it as "8e03978e-40d5-43dd-bc93-6894a57f9324", with printable ASCII characters between the quotes, and a backslash before each quote or backslash in it.`)
	errKeyUnquote = errors.New(`The idempotency key must be a quoted string (RFC 8941, section 3.3.3). Send it with its quotes, as "8e03978e-40d5-43dd-bc93-6894a57f9324".`)
	errKeyBare    = errors.New(`The idempotency key has characters other than printable ASCII, or a quote that it does not begin with. Send a UUID.`)
	errKeyUUID    = errors.New("The idempotency key is no UUID. Send one as 8e03978e-40d5-43dd-bc93-6894a57f9324: 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12.")
)

// parseKey reads the values of the header: one line, 1 to 255 printable ASCII characters when decoded. Its errors are texts for
// the client.
func parseKey(values []string, syntax Syntax, uuidOnly bool) (string, error) {
	switch {
	case len(values) == 0:
		return "", errKeyEmpty
	case len(values) > 1: // by RFC 8941 they would be joined, and a string cut in two would be one again
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
	case uuidOnly && !isUUID(key):
		return "", errKeyUUID
	case uuidOnly:
		return strings.ToLower(key), nil
	}
	return key, nil
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
		if c := bare[i]; c < ' ' || c > '~' || c == '"' {
			return "", errKeyBare
		}
	}
	return bare, nil
}

// decodeQuoted reads an Item whose value is a String. Its parameters mean nothing here, but must be some.
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

// isUUID reports whether s is in the canonical form of RFC 9562, in either case. It asks for no version: what matters is that the
// client drew it at random.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F'):
			return false
		}
	}
	return true
}
