package jsonv2

import (
	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/idem-go/idem"
)

// Decode returns the option that decodes values with this package, for a router, a group or one
// handler. Without arguments, names match in any case, and all else is as strict as v2. The given
// options override that, and the later ones override the earlier ones.
//
// The option is an [idem.PureDecode]: values are decoded after the claim, so duplicates cost no
// decoding. So functions given by json.WithUnmarshalers, and methods UnmarshalJSON and
// UnmarshalJSONFrom of the decoded types, must not have side effects.
//
// An event that cannot be decoded becomes a dead letter, as with the default decoder. The text of
// the error does not quote the value. The text has the fault, the position and the Go type.
// errors.As finds the *json.SemanticError or *jsontext.SyntacticError. Their own texts may quote
// the value. A mark on an error of the functions and methods above has its usual meaning, see
// [idem.Unavailable], and the text of a marked error is kept.
//
// The returned option may be used for many handlers, and its decoder is safe for concurrent use.
// The decoded value shares no memory with the message.
func Decode(opts ...json.Options) idem.Option { return idem.PureDecode(decoder(opts...)) }

// decoder returns the function that Decode sets.
func decoder(opts ...json.Options) func(m *idem.Message, into any) error {
	joined := json.JoinOptions(
		json.MatchCaseInsensitiveNames(true),
		jsonv1.MatchCaseSensitiveDelimiter(true),
		json.JoinOptions(opts...),
	)
	return func(m *idem.Message, into any) error {
		if err := json.Unmarshal(m.Value, into, joined); err != nil {
			return &decodeError{err}
		}
		return nil
	}
}
