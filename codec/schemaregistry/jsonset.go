package schemaregistry

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// The library looks for equal elements of an array by a hash, which is the same for 1 and -1, and for
// [[1],2] and [[1,2]]. It then compares all elements of one hash with each other. A value whose
// elements differ only in such places keeps a lane busy for minutes. So equal elements are found by
// their texts instead, and the work grows with the size of the array.

// uniqueItems is the keyword of that name. take counts the steps.
type uniqueItems struct {
	take func(steps int64)
}

// Validate implements [jsonschema.SchemaExt].
func (u uniqueItems) Validate(at *jsonschema.ValidatorContext, v any) {
	elements, _ := v.([]any)
	if i, j, found := equalElements(elements, u.take); found {
		at.AddError(&kind.UniqueItems{Duplicates: [2]int{i, j}})
	}
}

// equalElements returns the places of the first two elements that are equal in JSON Schema. take is
// told the steps of each element.
func equalElements(elements []any, take func(steps int64)) (i, j int, found bool) {
	places := make(map[string]int, len(elements))
	var text []byte
	for j, element := range elements {
		text = appendText(text[:0], element)
		take(1 + int64(len(text))/8)
		if i, found := places[string(text)]; found {
			return i, j, true
		}
		places[string(text)] = j
	}
	return 0, 0, false
}

// appendText appends a text of a value of readJSON. Equal values have equal texts, and others do not.
func appendText(text []byte, v any) []byte {
	switch v := v.(type) {
	case json.Number:
		return append(text, shortNumber(string(v))...)
	case string:
		return strconv.AppendQuote(text, v)
	case []any:
		text = append(text, '[')
		for _, element := range v {
			text = append(appendText(text, element), ',')
		}
		return append(text, ']')
	case map[string]any:
		text = append(text, '{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			text = append(strconv.AppendQuote(text, name), ':')
			text = append(appendText(text, v[name]), ',')
		}
		return append(text, '}')
	}
	return fmt.Append(text, v) // null, true or false
}

// shortNumber returns the text of a checkable number without zeros around its digits, and without a
// point. 1.50 and 15e-1 become 15e-1.
func shortNumber(text string) string {
	text, power, _ := strings.Cut(strings.ToLower(text), "e")
	exponent, _ := strconv.Atoi(power)
	text, negative := strings.CutPrefix(text, "-")
	whole, fraction, _ := strings.Cut(text, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(digits, "0")
	if short == "" {
		return "0"
	}
	exponent += len(digits) - len(short) - len(fraction)
	if negative {
		short = "-" + short
	}
	return short + "e" + strconv.Itoa(exponent)
}
