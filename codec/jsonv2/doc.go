// Package jsonv2 decodes the values of messages with the second version of encoding/json
// (github.com/go-json-experiment/json). From Go 1.27 on, that module forwards to encoding/json/v2
// of the standard library. The default decoder, encoding/json, is called v1 below.
//
//	r := idem.NewRouter(jsonv2.Decode())
//
// With Go 1.26, a payment of 230 bytes takes 0.4 of the time of v1, and 4 allocations instead of 11
// (BenchmarkDecode). The package is a module of its own, so that other users do not fetch the
// dependency.
//
// # Differences from encoding/json
//
// The decoder has the strict defaults of v2, with one exception: names of struct fields match in
// any case, as in v1. By v2's own default, a field with a name in another case would silently stay
// zero. The other differences of this table are errors, so they do not silently change a value. The
// event then becomes a dead letter of class undecodable. An option of [Decode] restores the meaning
// of v1, where one is named:
//
//	value                            encoding/json       here  for v1
//	name of a field in another case  matches             same
//	duplicate names                  the last one counts error jsontext.AllowDuplicateNames
//	id and ID for one field          the last one counts error jsontext.AllowDuplicateNames
//	invalid UTF-8, lone surrogates   become U+FFFD       error jsontext.AllowInvalidUTF8
//	unknown fields                   are skipped         same
//	omitted fields                   stay zero           same
//	null                             zero value          same
//	null, [] into a slice            nil, empty          same
//	a number into any                float64             same
//	a number into json.Number of v1  its digits          error none
//	"aGk=" into []byte               base64              same
//	"aG\nk=" into []byte             line breaks skipped error jsonv1.ParseBytesWithLooseRFC4648
//	[104,105] into []byte            the bytes           error jsonv1.FormatBytesWithLegacySemantics
//	[1,2] into [2]byte               the bytes           error jsonv1.FormatByteArrayAsArray
//	[1], [1,2,3] into [2]int         filled up, cut      error jsonv1.UnmarshalArrayFromAnyLength
//	5 into time.Duration             nanoseconds         error jsonv1.FormatDurationAsNano
//	"2026-01-02T3:04:05Z"            a time.Time         error jsonv1.ParseTimeWithLooseRFC3339
//	bool or string tagged "string"   a quoted value      error jsonv1.StringifyWithLegacySemantics
//	"01" as a key, or so tagged      the number 1        error jsonv1.StringifyWithLegacySemantics
//	text after the value             error               same
//	an empty value                   error               same
//
// Here jsonv1 is package github.com/go-json-experiment/json/v1, and same means as encoding/json. A
// message with a nil value is not decoded, see [idem.Tombstones].
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
