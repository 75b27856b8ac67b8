package jsonv2

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/idem-go/idem"
)

// decodeError gives an error of the decoder a text without data. The decoder's own texts quote
// numbers, strings, and names, which may be the keys of a map.
type decodeError struct{ err error }

// Unwrap returns the error as the decoder returned it.
func (e *decodeError) Unwrap() error { return e.err }

// Error returns the fault, the position and the Go type.
func (e *decodeError) Error() string {
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(e.err, &semantic):
		kind, at := kindOf(semantic.JSONKind), semantic.ByteOffset
		text := fmt.Sprintf("JSON %s at byte %d does not fit", kind, at)
		if semantic.GoType != nil {
			text += " Go type " + semantic.GoType.String()
		}
		if semantic.Err == nil {
			return text
		}
		return text + ": " + cause(semantic.Err)
	case errors.As(e.err, &syntactic):
		text := fmt.Sprintf("invalid JSON at byte %d", syntactic.ByteOffset)
		if syntactic.Err != nil && isSentence(syntactic.Err) {
			text += ": " + syntactic.Err.Error()
		}
		return text
	}
	// A DecodeError limits the text of its cause to the parts without data of the value. A marked
	// error keeps its own words.
	return strings.TrimPrefix((&idem.DecodeError{Err: e.err}).Error(), "decode into : ")
}

// cause returns the text of an inner error without data.
func cause(err error) string {
	if isSentence(err) {
		return err.Error()
	}
	return (&decodeError{err}).Error()
}

// sentences are texts of the decoder without data of the value. Other texts are replaced.
var sentences = []string{
	"ambiguous object member name",
	"duplicate object member name",
	"exceeded max depth",
	"invalid UTF-8",
	"invalid syntax",
	"invalid use of `string` tag option",
	"missing value after object name",
	"no default representation",
	"object member name must be a string",
	"too few array elements",
	"too many array elements",
	"unexpected EOF",
	"unknown object member name",
	"value out of range",
}

func isSentence(err error) bool { return slices.Contains(sentences, err.Error()) }

// kindOf names a kind of JSON as encoding/json does.
func kindOf(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 'f', 't':
		return "bool"
	case '"':
		return "string"
	case '0':
		return "number"
	case '{', '}':
		return "object"
	case '[', ']':
		return "array"
	default:
		return "value"
	}
}
