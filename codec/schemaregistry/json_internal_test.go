package schemaregistry

import (
	"encoding/json"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
)

// A schema with a number that cannot be checked cannot be used. A reference is refused too.
func TestParseJSON_LargeNumbers(t *testing.T) {
	large := sr.Schema{Schema: `{"multipleOf":1e1000001}`, Type: sr.TypeJSON}
	_, err := parseJSON(large, nil)
	require.ErrorIs(t, err, errNumber)
	outer := sr.Schema{
		Schema: `{"$ref":"inner.json"}`, Type: sr.TypeJSON,
		References: []sr.SchemaReference{{Name: "inner.json"}},
	}
	_, err = parseJSON(outer, []reference{{"inner.json", large}})
	require.ErrorIs(t, err, errNumber)
}

func TestCheckableNumber(t *testing.T) {
	for text, want := range map[string]bool{
		"0": true, "-7.25": true, "1e3": true, "1E+1000": true, "1e-1000": true, "1e0000003": true,
		"1e1001": false, "-1E+1001": false, "1e-1001": false, "1e99999999999999999999": false,
		strings.Repeat("9", maxNumber): true, strings.Repeat("9", maxNumber+1): false,
		"0." + strings.Repeat("0", maxNumber): false, strings.Repeat("9", maxNumber) + "e1": false,
	} {
		require.Equal(t, want, checkableNumber(text), text)
	}
}

// operations is a schema of nested operations. The library checks each operation against both of its
// branches, and so twice as often as the operation around it.
const operations = `{"oneOf":[
	{"type":"object","properties":{"op":{"const":"and"},"args":{"items":{"$ref":"#"}}}},
	{"type":"object","properties":{"op":{"const":"or"},"args":{"items":{"$ref":"#"}}}},
	{"type":"integer"}]}`

func nested(depth int, leaf string) string {
	return strings.Repeat(`{"op":"or","args":[`, depth) + leaf + strings.Repeat(`]}`, depth)
}

// union is a schema of arrays. Each element has one of twenty types.
func union() string {
	types, branches := make([]string, 20), make([]string, 20)
	for i := range types {
		types[i] = fmt.Sprintf(`"T%d":{"type":"object","required":["id"],"properties":{"kind":{"const":"t%[1]d"},
			"id":{"type":"integer"},"name":{"type":"string"},"on":{"type":"boolean"}}}`, i)
		branches[i] = fmt.Sprintf(`{"$ref":"#/definitions/T%d"}`, i)
	}
	return `{"type":"array","items":{"oneOf":[` + strings.Join(branches, ",") + `]},"definitions":{` +
		strings.Join(types, ",") + `}}`
}

func array(length int, element string) string {
	return "[" + strings.Repeat(element+",", length-1) + element + "]"
}

// coordinates is an array of pairs that differ. Each has two numbers of three digits.
func coordinates(length int) string {
	pairs := make([]string, length)
	for i := range pairs {
		pairs[i] = fmt.Sprintf("[%d,%d]", 100+i/500, 100+i%500)
	}
	return "[" + strings.Join(pairs, ",") + "]"
}

// signs is an array of arrays that differ only in the signs of their numbers.
func signs(length, size int) string {
	elements := make([]string, length)
	for i := range elements {
		ones := make([]string, size)
		for bit := range ones {
			ones[bit] = strconv.Itoa(1 - 2*(i>>bit&1))
		}
		elements[i] = "[" + strings.Join(ones, ",") + "]"
	}
	return "[" + strings.Join(elements, ",") + "]"
}

func lists(depth int, leaf string) string {
	return strings.Repeat(`[`, depth) + leaf + strings.Repeat(`]`, depth)
}

// doubled is a schema that checks a text 2^16 times. start is its first reference.
func doubled(start string) string {
	const levels = 16
	text := `{"$schema":"https://json-schema.org/draft/2020-12/schema",` + start + `,"A0":{"type":"string"}`
	for i := range levels {
		text += fmt.Sprintf(`,"A%d":{"allOf":[{"$ref":"#/$defs/A%d"},{"$ref":"#/$defs/A%[2]d"}]}`, i+1, i)
	}
	return text + `}}`
}

// A check that would keep the lane or take the memory ends early, and the value is undecodable.
func TestJSONFormat_TooManySteps(t *testing.T) {
	const (
		list    = `{"type":"array","items":{"$ref":"#"}}`
		negated = `{"not":{"oneOf":[{"items":{"$ref":"#/not"}},{"items":{"$ref":"#/not"}}]}}`
		plain   = `"$ref":"#/$defs/A16","$defs":{"other":true`
		dynamic = `"$ref":"tree","$defs":{"tree":{"$id":"tree","$dynamicRef":"#node","$defs":{"leaf":{"$dynamicAnchor":"node"}}},
			"found":{"$dynamicAnchor":"node","$ref":"#/$defs/A16"}`
	)
	typed := `{"items":{"oneOf":` + array(20, `{"type":"object"}`) + `}}`
	patterned := strings.Replace(doubled(plain), `"type":"string"`, `"patternProperties":{"y$":{}}`, 1)
	named := `{"` + strings.Repeat("x", 250) + `":1}`
	long := `"` + strings.Repeat("x", 10_000) + `"`
	pairs := `{"type":"array","uniqueItems":true,"items":{"type":"array","items":{"type":"integer"}}}`
	repeated := strings.Replace(doubled(plain), `"type":"string"`, `"uniqueItems":true`, 1)
	for name, c := range map[string]struct {
		schema, value, text string
	}{
		"nested":                    {operations, nested(12, `1`), ""},
		"nested too deep":           {operations, nested(40, `1`), "too many steps"},
		"nested too deep, invalid":  {operations, nested(40, `"x"`), "too many steps"},
		"nested too deep, in a not": {negated, lists(40, ``), "too many steps"},
		"a reference twice":         {doubled(plain), long, "too many steps"},
		"a long name twice":         {patterned, named, "too many steps"},
		"a dynamic reference twice": {doubled(dynamic), long, "too many steps"},
		"short":                     {doubled(plain), `"x"`, ""},
		"a short name":              {patterned, `{"x":1}`, ""},
		"deep":                      {list, lists(500, ``), ""},
		"deep, with long places":    {list, lists(9_000, `1`), "too many steps"},
		"long":                      {list, array(20_001, `[]`), ""},
		"long, invalid":             {list, array(20_001, `1`), "does not fit"},
		"long union":                {union(), array(6_000, `{"kind":"t19","id":1234567,"name":"abcd","on":true}`), ""},
		"long union, invalid":       {typed, array(100_000, `1`), "too many steps"},
		"union, invalid":            {typed, array(5_000, `1`), "does not fit"},
		"long set":                  {pairs, coordinates(16_000), ""},
		"long set, invalid":         {pairs, array(16_000, `[100,200]`), "does not fit the JSON Schema: #/uniqueItems"},
		"long set of signs":         {`{"uniqueItems":true}`, signs(20_000, 24), ""},
		"a short set":               {repeated, `["x","y"]`, ""},
		"a set of long texts twice": {repeated, "[" + long + `,"y"]`, "too many steps"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := parseJSON(sr.Schema{Schema: c.schema, Type: sr.TypeJSON}, nil)
			require.NoError(t, err)
			if err = f.(*jsonFormat).validate([]byte(c.value)); c.text == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.text)
			}
		})
	}
}

// A visit costs as much as the library does in it, and a step for each visit that it begins.
func TestVisitSteps(t *testing.T) {
	object := func(n int) map[string]any {
		members := map[string]any{}
		for i := range n {
			members[strconv.Itoa(i)] = []any{true, nil}
		}
		return members
	}
	inner := &jsonschema.Schema{}
	patterns := map[jsonschema.Regexp]*jsonschema.Schema{regexp.MustCompile("a"): nil, regexp.MustCompile("b"): nil}
	union, two := make([]*jsonschema.Schema, 20), map[string]*jsonschema.Schema{"0": inner, "1": inner}
	for name, c := range map[string]struct {
		schema jsonschema.Schema
		v      any
		want   int64
	}{
		"null":                  {jsonschema.Schema{}, nil, 0},
		"number":                {jsonschema.Schema{}, json.Number("7"), 0},
		"text":                  {jsonschema.Schema{}, "abc", 0},
		"long text":             {jsonschema.Schema{}, strings.Repeat("x", 160), 10},
		"array":                 {jsonschema.Schema{}, []any{object(5), nil}, 0},
		"long array":            {jsonschema.Schema{}, make([]any, 100), 12},
		"elements":              {jsonschema.Schema{Items: inner}, make([]any, 100), 112},
		"elements, 2020":        {jsonschema.Schema{Items2020: inner}, make([]any, 100), 112},
		"first elements":        {jsonschema.Schema{PrefixItems: union}, make([]any, 100), 112},
		"elements after others": {jsonschema.Schema{AdditionalItems: inner}, make([]any, 100), 112},
		"contains":              {jsonschema.Schema{Items: inner, Contains: inner}, make([]any, 100), 212},
		"other elements":        {jsonschema.Schema{UnevaluatedItems: inner}, make([]any, 100), 112},
		"object":                {jsonschema.Schema{}, object(5), 0},
		"large object":          {jsonschema.Schema{}, object(50), 6},
		"object, required":      {jsonschema.Schema{Required: make([]string, 30)}, object(5), 3},
		"members":               {jsonschema.Schema{Properties: two}, object(50), 56},
		"additional members":    {jsonschema.Schema{AdditionalProperties: inner}, object(50), 56},
		"object, patterned":     {jsonschema.Schema{Properties: two, PatternProperties: patterns}, object(5), 15},
		"long name":             {jsonschema.Schema{}, map[string]any{strings.Repeat("a", 1600): nil}, 6},
		"long name, patterned": {
			jsonschema.Schema{PatternProperties: patterns}, map[string]any{strings.Repeat("a", 1600): nil}, 6 + 101*2,
		},
		"names":         {jsonschema.Schema{PropertyNames: inner}, object(5), 5},
		"other members": {jsonschema.Schema{UnevaluatedProperties: inner}, object(5), 5},

		"one of":              {jsonschema.Schema{OneOf: union}, json.Number("7"), 20},
		"any of, text":        {jsonschema.Schema{AnyOf: union}, strings.Repeat("x", 160), 30},
		"all of, members":     {jsonschema.Schema{AllOf: union, Properties: two}, object(5), 25},
		"one and all of":      {jsonschema.Schema{OneOf: union, AllOf: union[:3]}, nil, 23},
		"dependencies":        {jsonschema.Schema{Dependencies: map[string]any{"0": inner}}, object(5), 1},
		"dependent schemas":   {jsonschema.Schema{DependentSchemas: two}, object(5), 2},
		"reference":           {jsonschema.Schema{Ref: inner}, nil, 1},
		"recursive reference": {jsonschema.Schema{RecursiveRef: inner}, nil, 1},
		"dynamic reference":   {jsonschema.Schema{DynamicRef: &jsonschema.DynamicRef{Ref: inner}}, nil, 1},
		"not":                 {jsonschema.Schema{Not: inner}, nil, 1},
		"if":                  {jsonschema.Schema{If: inner, Then: inner, Else: inner}, nil, 3},
		"content":             {jsonschema.Schema{ContentSchema: inner}, "{}", 1},
	} {
		require.Equal(t, c.want, visitSteps(&c.schema, c.v), name)
	}
}

// Steps are dearer in a value with long places or numbers.
func TestStepWeight(t *testing.T) {
	for text, want := range map[string]int64{
		`1`: 1, `{"a":[{"b":"c"}]}`: 1, lists(9, ``): 2, lists(80, `1`): 11, `[[1],{"a":` + lists(15, ``) + `}]`: 3,
		`1e1000`: 16, `[1E-1000]`: 16, `{"a":` + strings.Repeat("9", 128) + `}`: 3,
	} {
		v, err := readJSON(strings.NewReader(text))
		require.NoError(t, err)
		require.Equal(t, want, stepWeight(v), text)
	}
}

// Lanes check values at once, and each has its own steps.
func TestJSONFormat_AtOnce(t *testing.T) {
	f, err := parseJSON(sr.Schema{Schema: operations, Type: sr.TypeJSON}, nil)
	require.NoError(t, err)
	var lanes sync.WaitGroup
	for lane := range 4 * runtime.GOMAXPROCS(0) {
		lanes.Go(func() {
			if lane%4 == 0 {
				assert.ErrorIs(t, f.(*jsonFormat).validate([]byte(nested(40, `1`))), errSteps)
				return
			}
			for range 5 {
				assert.NoError(t, f.(*jsonFormat).validate([]byte(nested(8, `1`))))
			}
		})
	}
	lanes.Wait()
}
