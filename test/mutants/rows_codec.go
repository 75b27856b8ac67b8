package main

// codecMutants are faults that give up good events, or that make two IDs equal, in the codecs and in
// the functions that mark errors.
func codecMutants() []mutant {
	registry := func(run string) owner { return ownedBy("codec/schemaregistry", run) }
	const dir = "codec/schemaregistry/"
	return []mutant{
		{
			name: "classify-sdk-400-is-permanent", file: "classify/http.go",
			old: "\t\tif own {\n", with: "\t\tif own || code > 0 {\n",
			promise: "A throttled request to AWS dead-letters no event.",
			tests:   ownedBy("classify", "^TestHTTP$"),
		},
		{
			name: "cloudevents-replaced-unicode", file: "codec/cloudevents/json.go",
			old: "\treturn n == 0\n", with: "\treturn n <= 0 || true\n",
			promise: "Two IDs with invalid Unicode do not become one (P-22).",
			tests:   ownedBy("codec/cloudevents", "^TestAttributes_Unicode_P22$"),
		},
		{
			name: "registry-field-replaced-unicode", file: dir + "field.go",
			old: "if strings.Contains(text, replacement) {", with: "if text == replacement {",
			promise: "Two IDs with invalid Unicode do not become one (P-22).",
			tests:   registry("^TestField$"),
		},
		{
			name: "registry-answer-without-schema", file: dir + "registry.go",
			old: "\tif err == nil && s.Schema == \"\" {\n", with: "\tif err == nil && s.Schema == \"none\" {\n",
			promise: "JSON without a schema is no answer, and is not cached (rule 61).",
			tests:   registry("^TestUnavailable$"),
		},
		{
			name: "registry-reference-unknown-at-once", file: dir + "registry.go",
			old: "if !isAbsent(err) || try == unknownAsks {", with: "if !isUnknown(err) || try == unknownAsks {",
			promise: "A reference counts as unknown only after three answers (rule 61).",
			tests:   registry("^TestReferences_Answers$"),
		},
		{
			name: "registry-avro-skips-a-loop", file: dir + "avroloop.go",
			old: "\t\t\tif loopsAtOnce(f.Type()) {\n", with: "\t\t\tif t == nil {\n",
			promise: "A value with a recursive Avro type does not end the process.",
			tests:   registry("^TestCheckSkips$"),
		},
		{
			name: "registry-avro-resolves-loops", file: dir + "avro.go",
			old: "case loops(reader), loopsAtOnce(writer):", with: "case loops(reader) && loopsAtOnce(writer):",
			promise: "A recursive Avro schema does not end the process when it meets a reader's schema.",
			tests:   registry("^TestAvro_Recursive$"),
		},
		{
			name: "registry-avro-counts-unchecked", file: dir + "avrowalk.go",
			old: "return w.blocks(s.Items(), false, depth+1)", with: "_, err := w.integer(maxLongBytes)\n\t\treturn err",
			promise: "A corrupt count in an Avro value is an error, and stops no lane.",
			tests:   registry("^TestCheckAvro$"),
		},
		{
			name: "registry-avro-size-of-a-block", file: dir + "avrowalk.go",
			old: "if size != 0 && size != int64(before-len(w.rest)) {", with: "if size != 0 && size > int64(before-len(w.rest)) {",
			promise: "A skipped block ends where its elements end.",
			tests:   registry("^TestCheckAvro$"),
		},
		{
			name: "registry-avro-types-uncounted", file: dir + "avro.go",
			old: "if avroTypes(f.decoder, maxAvroTypes) > maxAvroTypes {", with: "if f == nil {",
			promise: "An Avro schema with many references does not take all memory.",
			tests:   registry("^TestParseAvro_TooManyTypes$"),
		},
		{
			name: "registry-avro-union-uncounted", file: dir + "avrosize.go",
			old: "\t\tc.later = append(c.later, s.Types()...)\n", with: "",
			promise: "An Avro schema with many references inside a union does not take all memory.",
			tests:   registry("^TestAvroTypes$"),
		},
		{
			name: "registry-avro-empty-values-unchecked", file: dir + "avrowalk.go",
			old: "if before == len(w.rest) {", with: "if before == len(w.rest) && depth == 0 {",
			promise: "An Avro value with endless nulls is an error, and stops no lane.",
			tests:   registry("^TestCheckAvro_Empty$"),
		},
		{
			name: "registry-json-exponent-unchecked", file: dir + "json.go",
			old:     "return err == nil && -maxExponent <= exponent && exponent <= maxExponent",
			with:    "return err == nil && exponent <= maxExponent",
			promise: "A large exponent in a JSON value is an error, and stops no lane.",
			tests:   registry("^TestCheckableNumber$"),
		},
		{
			name: "registry-json-visits-uncounted", file: dir + "jsonsteps.go",
			old: "c.take(c.weight * visitSteps(s, v))", with: "c.take(0 * visitSteps(s, v))",
			promise: "A JSON value whose check would never end is an error, and stops no lane.",
			tests:   registry("^TestJSONFormat_TooManySteps$/^a_reference_twice$"),
		},
		{
			name: "registry-json-branches-for-nothing", file: dir + "jsonsteps.go",
			old: "len(s.AllOf) + len(s.AnyOf) + len(s.OneOf) +", with: "len(s.AllOf) + len(s.AnyOf) +",
			promise: "A JSON value that fits no branch of a oneOf does not fill the memory with errors.",
			tests:   registry("^TestJSONFormat_TooManySteps$/^long_union,_invalid$"),
		},
		{
			name: "registry-json-names-for-nothing", file: dir + "jsonsteps.go",
			old: "n += each*(1+int64(len(name))/16) +", with: "n += each +",
			promise: "A JSON value with a long name, which patterns look through again and again, stops no lane.",
			tests:   registry("^TestJSONFormat_TooManySteps$/^a_long_name_twice$"),
		},
		{
			name: "registry-json-sets-for-nothing", file: dir + "jsonset.go",
			old: "take(1 + int64(len(text))/8)", with: "take(1)",
			promise: "A JSON value with a long set, which is looked through again and again, stops no lane.",
			tests:   registry("^TestJSONFormat_TooManySteps$/^a_set_of_long_texts_twice$"),
		},
		{
			name: "registry-json-sets-without-signs", file: dir + "jsonset.go",
			old: "short = \"-\" + short", with: "_ = short",
			promise: "A JSON value whose elements differ in a sign fits uniqueItems.",
			tests:   registry("^TestEqualElements$"),
		},
		{
			name: "registry-json-later-drafts-uncounted", file: dir + "jsonsteps.go",
			old: "\t\tall.AssertVocabs()\n", with: "",
			promise: "Checks against a JSON Schema of a later draft are counted too.",
			tests:   registry("^TestJSONFormat_TooManySteps$/^a_dynamic_reference_twice$"),
		},
		{
			name: "registry-json-places-for-nothing", file: dir + "jsonsteps.go",
			old: "return 1 + int64(depth)/8 +", with: "return 1 + int64(depth)/8_000_000 +",
			promise: "A JSON value with many levels does not fill the memory with places of errors.",
			tests:   registry("^TestStepWeight$"),
		},
	}
}
