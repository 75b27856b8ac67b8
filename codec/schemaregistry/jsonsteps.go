package schemaregistry

import (
	"encoding/json"
	"errors"
	"runtime"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/twmb/franz-go/pkg/sr"
)

// A check of the JSON Schema library visits one part of a value for each way through the schema. The
// ways double with each level if two branches of a oneOf refer to the schema itself, so that a short
// value keeps a lane busy for ever. The library cannot be cancelled, and collects an error for each
// visit. So each visit is counted, and a panic ends the check after too many.

// The steps that one check may take: so many, and more for each byte of the value. The errors of a
// step take about 200 bytes, and at most about 300, until the check ends.
const (
	minSteps     = 500_000
	stepsPerByte = 3
)

var errSteps = errors.New("the check takes too many steps")

// jsonChecker checks one value at a time.
type jsonChecker struct {
	schema *jsonschema.Schema
	left   int64 // steps
	weight int64 // of one step
}

func newJSONChecker(source sr.Schema, refs []reference) (*jsonChecker, error) {
	c := &jsonChecker{}
	var err error
	c.schema, err = compileJSON(source, refs, func(all *jsonschema.Compiler) {
		all.RegisterVocabulary(&jsonschema.Vocabulary{
			URL: "idem:///steps",
			Compile: func(at *jsonschema.CompilerContext, _ map[string]any) (jsonschema.SchemaExt, error) {
				s := at.Enqueue(nil) // an empty path leads to the schema that is being compiled
				c.count(s)
				if !s.UniqueItems {
					return nil, nil //nolint:nilnil // there are no keywords
				}
				s.UniqueItems = false // the library does not look for equal elements too
				return uniqueItems{c.take}, nil
			},
		})
		all.AssertVocabs()
	})
	return c, err
}

// count lets a visit of s take steps. The format comes before the visits inside. It comes after the
// type, const and enum, so that a visit which fails at one of them is counted by the visit around it.
func (c *jsonChecker) count(s *jsonschema.Schema) {
	format := s.Format
	if format == nil {
		format = &jsonschema.Format{Validate: func(any) error { return nil }}
	}
	s.Format = &jsonschema.Format{Name: format.Name, Validate: func(v any) error {
		c.take(c.weight * visitSteps(s, v))
		return format.Validate(v)
	}}
}

// take takes steps, and panics if too few are left.
func (c *jsonChecker) take(steps int64) {
	if c.left -= steps; c.left < 0 {
		panic(errSteps)
	}
}

// check checks a value of so many bytes. The error is errSteps if the check has not ended.
func (c *jsonChecker) check(v any, size int) (err error) {
	c.left, c.weight = minSteps+stepsPerByte*int64(size), stepWeight(v)
	defer func() {
		if c.left < 0 {
			_ = recover() // the panic of take
			err = errSteps
		}
	}()
	return c.schema.Validate(v) //nolint:wrapcheck // the caller needs the library's error
}

// visitSteps returns the steps of one visit: one for each visit that it begins, and those of its own
// work. The visit itself is a step of the visit around it.
func visitSteps(s *jsonschema.Schema, v any) int64 {
	n := sameVisits(s)
	switch v := v.(type) {
	case string:
		n += int64(len(v)) / 16
	case []any:
		n += int64(len(v))/8 + int64(len(v))*elementVisits(s)
	case map[string]any:
		n += int64(len(v))/8 + int64(len(s.Required))/8 // the error names those that are missing
		each := memberVisits(s)
		for name := range v { // a name is hashed, and compared with the patterns
			n += each*(1+int64(len(name))/16) + int64(len(name))/256
		}
	}
	return n
}

// sameVisits returns the visits of the same value that a visit may begin.
func sameVisits(s *jsonschema.Schema) int64 {
	n := len(s.AllOf) + len(s.AnyOf) + len(s.OneOf) + len(s.Dependencies) + len(s.DependentSchemas)
	if s.DynamicRef != nil {
		n++
	}
	return int64(n) + present(s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.ContentSchema)
}

// elementVisits returns the visits of each element that a visit of an array may begin.
func elementVisits(s *jsonschema.Schema) int64 {
	n := present(s.Contains, s.UnevaluatedItems)
	if s.Items != nil || s.AdditionalItems != nil || s.Items2020 != nil || len(s.PrefixItems) > 0 {
		n++
	}
	return n
}

// memberVisits returns the visits of each member that a visit of an object may begin.
func memberVisits(s *jsonschema.Schema) int64 {
	n := present(s.PropertyNames, s.UnevaluatedProperties) + int64(len(s.PatternProperties))
	if s.AdditionalProperties != nil || len(s.Properties) > 0 {
		n++
	}
	return n
}

// present returns the number of schemas that are not nil.
func present(schemas ...*jsonschema.Schema) (n int64) {
	for _, s := range schemas {
		if s != nil {
			n++
		}
	}
	return n
}

// stepWeight returns the weight of each step of a check of v. An error has a copy of its place in
// the value, and a number is written with all its digits.
func stepWeight(v any) int64 {
	depth, digits := valueDepth(v)
	return 1 + int64(depth)/8 + int64(digits)/64
}

// valueDepth returns the levels of a value, and the digits of its longest number.
func valueDepth(v any) (depth, digits int) {
	inside := func(v any) {
		levels, most := valueDepth(v)
		depth, digits = max(depth, 1+levels), max(digits, most)
	}
	switch v := v.(type) {
	case json.Number:
		return 0, numberDigits(string(v))
	case []any:
		for _, element := range v {
			inside(element)
		}
	case map[string]any:
		for _, member := range v {
			inside(member)
		}
	}
	return depth, digits
}

// jsonCheckers are the checkers of one schema. There are as many as checks have run at once, and no
// more than processors.
type jsonCheckers struct {
	create func() (*jsonChecker, error)
	free   chan *jsonChecker
	room   chan struct{} // for further checkers
}

func newJSONCheckers(create func() (*jsonChecker, error)) *jsonCheckers {
	most := runtime.GOMAXPROCS(0)
	return &jsonCheckers{create, make(chan *jsonChecker, most), make(chan struct{}, most)}
}

// check checks a value of so many bytes with a free checker.
func (all *jsonCheckers) check(v any, size int) error {
	c, err := all.take()
	if err != nil {
		return err
	}
	defer func() { all.free <- c }()
	return c.check(v, size)
}

func (all *jsonCheckers) take() (*jsonChecker, error) {
	select {
	case c := <-all.free:
		return c, nil
	default:
	}
	select {
	case c := <-all.free:
		return c, nil
	case all.room <- struct{}{}:
		c, err := all.create()
		if err != nil {
			<-all.room
		}
		return c, err
	}
}
