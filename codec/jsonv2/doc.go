// Package jsonv2 decodes the values of messages with the second version of encoding/json
// (github.com/go-json-experiment/json). A payment of 230 bytes takes about half the time and half
// the allocations of the default decoder, encoding/json, which is called v1 below. The package is a
// module of its own, so that other users do not fetch the dependency.
//
//	r := idem.NewRouter(jsonv2.Decode())
//
// # Differences from encoding/json
//
// The decoder has the strict defaults of v2, with one exception: names of struct fields match in any
// case, as in v1. By v2's own default, a field whose name has another case would silently stay zero.
// The other differences of this table are errors. So none of them silently changes a value. The
// event then becomes a dead letter of class undecodable. An option of [Decode] restores the meaning
// of v1, where one is named:
//
//	value                            encoding/json           this package            for v1
//	name of a field in another case  matches                 matches                 (default)
//	duplicate names                  the last one counts     error                   jsontext.AllowDuplicateNames
//	id and ID for one field          the last one counts     error                   jsontext.AllowDuplicateNames
//	invalid UTF-8, lone surrogates   become U+FFFD           error                   jsontext.AllowInvalidUTF8
//	unknown fields                   are skipped             are skipped             (default)
//	omitted fields                   stay zero               stay zero               (default)
//	null                             zero value              zero value              (default)
//	null, [] into a slice            nil, empty              nil, empty              (default)
//	a number into any                float64                 float64                 (default)
//	a number into json.Number of v1  its digits              error                   none
//	"aGk=" into []byte               base64                  base64                  (default)
//	"aG\nk=" into []byte             line breaks skipped     error                   jsonv1.ParseBytesWithLooseRFC4648
//	[104,105] into []byte            the bytes               error                   jsonv1.FormatBytesWithLegacySemantics
//	[1,2] into [2]byte               the bytes               error; takes base64     jsonv1.FormatByteArrayAsArray
//	[1] or [1,2,3] into [2]int       filled up, cut          error                   jsonv1.UnmarshalArrayFromAnyLength
//	5 into time.Duration             nanoseconds             error                   jsonv1.FormatDurationAsNano
//	"2026-01-02T3:04:05Z"            a time.Time             error                   jsonv1.ParseTimeWithLooseRFC3339
//	tag "string" at a bool, string   a quoted value          error                   jsonv1.StringifyWithLegacySemantics
//	"01" as a key or tagged "string" the number 1            error                   jsonv1.StringifyWithLegacySemantics
//	text after the value             error                   error                   none
//	an empty value                   error                   error                   none
//
// Here jsonv1 is package github.com/go-json-experiment/json/v1. A message with a nil
// value is not decoded, see [idem.Tombstones].
//
// Package json has more options. For example, json.RejectUnknownMembers(true) refuses unknown
// fields, and json.MatchCaseInsensitiveNames(false) compares names byte by byte.
//
// # Changing an existing consumer
//
// Before a change from v1, decode recent records of the topic with both. Records that only v1 takes
// become dead letters after the change. A dead letter keeps its record, and can be replayed after
// the needed option is set.
package jsonv2
