package schemaregistry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/twmb/franz-go/pkg/sr"
)

type jsonFormat struct {
	title    string
	checkers *jsonCheckers
}

// noLoader refuses to load schemas from files and other addresses.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("it is no reference of the schema in the registry")
}

// root is the address of the schema of a value.
const root = "idem:///schema.json"

func parseJSON(source sr.Schema, refs []reference) (format, error) {
	s, err := compileJSON(source, refs, func(*jsonschema.Compiler) {})
	if err != nil {
		return nil, err
	}
	return &jsonFormat{s.Title, newJSONCheckers(func() (*jsonChecker, error) {
		return newJSONChecker(source, refs)
	})}, nil
}

// compileJSON compiles a schema. prepare changes the compiler before.
func compileJSON(
	source sr.Schema, refs []reference, prepare func(*jsonschema.Compiler),
) (*jsonschema.Schema, error) {
	doc, err := readJSON(strings.NewReader(source.Schema))
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.DefaultDraft(jsonschema.Draft7) // as Confluent's serializers
	prepare(c)
	if err := c.AddResource(root, doc); err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	if err := addReferences(c, source, doc, refs); err != nil {
		return nil, err
	}
	s, err := c.Compile(root)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	return s, nil
}

// addReferences adds each reference wherever one of its holders looks for it: at the name of the
// reference, resolved against the address and the $id of the holder.
func addReferences(c *jsonschema.Compiler, source sr.Schema, doc any, refs []reference) error {
	docs := make(map[string]any)
	for _, ref := range refs {
		doc, err := readJSON(strings.NewReader(ref.source.Schema))
		if err != nil {
			return fmt.Errorf("reference %s: %w", ref.name, err)
		}
		docs[ref.name] = doc
	}
	added := map[string]bool{}
	add := func(held []sr.SchemaReference, bases ...string) error {
		for _, ref := range held {
			for _, base := range bases {
				at := resolve(base, ref.Name)
				if at == base || added[at] {
					continue
				}
				added[at] = true
				if err := c.AddResource(at, docs[ref.Name]); err != nil {
					return fmt.Errorf("reference %s: %w", ref.Name, err)
				}
			}
		}
		return nil
	}
	base := resolve(root, idOf(doc))
	if err := add(source.References, root, base); err != nil {
		return err
	}
	for _, ref := range slices.Backward(refs) {
		own := resolve(resolve(base, ref.name), idOf(docs[ref.name]))
		if err := add(ref.source.References, root, base, own); err != nil {
			return err
		}
	}
	return nil
}

// idOf returns the address that a schema gives itself. Empty without one.
func idOf(doc any) string {
	members, _ := doc.(map[string]any)
	id, ok := members["$id"].(string)
	if !ok {
		id, _ = members["id"].(string) // draft 4
	}
	return id
}

// resolve returns the address of a name in a schema with the address base. If the name is invalid,
// the result is base.
func resolve(base, name string) string {
	u, err := url.Parse(base)
	if err != nil {
		return base
	}
	if u, err = u.Parse(name); err != nil {
		return base
	}
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}

// readJSON returns the parsed text. The error is errNumber if a number is too large to be checked.
func readJSON(text io.Reader) (any, error) {
	v, err := jsonschema.UnmarshalJSON(text)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller adds the text's name
	}
	if !checkable(v) {
		return nil, errNumber
	}
	return v, nil
}

// The largest numbers that are checked. A check writes a number with all digits that its exponent
// stands for, and cannot be cancelled. The library ends in a panic beyond an exponent of a million.
const (
	maxNumber   = 400 // characters
	maxExponent = 1000
)

var errNumber = fmt.Errorf("a number has more than %d characters, or an exponent beyond %d",
	maxNumber, maxExponent)

// checkable reports whether all numbers in a value of readJSON can be checked in a short time.
func checkable(v any) bool {
	switch v := v.(type) {
	case json.Number:
		return checkableNumber(string(v))
	case []any:
		for _, element := range v {
			if !checkable(element) {
				return false
			}
		}
	case map[string]any:
		for _, member := range v {
			if !checkable(member) {
				return false
			}
		}
	}
	return true
}

func checkableNumber(text string) bool {
	if len(text) > maxNumber {
		return false
	}
	at := strings.IndexAny(text, "eE")
	if at < 0 {
		return true
	}
	exponent, err := strconv.Atoi(text[at+1:])
	return err == nil && -maxExponent <= exponent && exponent <= maxExponent
}

// numberDigits returns about how many digits a checkable number stands for.
func numberDigits(text string) int {
	_, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	n, _ := strconv.Atoi(exponent)
	return len(text) + max(n, -n)
}

func (f *jsonFormat) decode(payload []byte, _ []int, into any) error {
	if err := f.validate(payload); err != nil {
		return err
	}
	if err := json.Unmarshal(payload, into); err != nil {
		return fmt.Errorf("JSON: %w", err)
	}
	return nil
}

func (f *jsonFormat) encode(v any) (payload []byte, message []int, err error) {
	if payload, err = json.Marshal(v); err != nil {
		return nil, nil, fmt.Errorf("JSON: %w", err)
	}
	return payload, nil, f.validate(payload)
}

// validate checks a value against the schema. The text of the error names places in the schema and
// does not quote the value.
func (f *jsonFormat) validate(payload []byte) error {
	v, err := readJSON(bytes.NewReader(payload))
	switch {
	case errors.Is(err, errNumber):
		return fmt.Errorf("the value cannot be checked against the JSON Schema: %w", err)
	case err != nil:
		return errors.New("the value is not valid JSON")
	}
	err = f.checkers.check(v, len(payload))
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errSteps):
		return fmt.Errorf("the value cannot be checked against the JSON Schema: %w", err)
	case errors.As(err, &invalid):
		return errors.New("the value does not fit the JSON Schema: " + strings.Join(faults(invalid, nil), ", "))
	}
	return errors.New("the value cannot be checked against the JSON Schema")
}

// maxFaults limits the places that an error names.
const maxFaults = 4

// faults returns the places in the schema that a value does not fit.
func faults(e *jsonschema.ValidationError, found []string) []string {
	if len(found) == maxFaults {
		return found
	}
	if len(e.Causes) == 0 {
		_, place, _ := strings.Cut(e.SchemaURL, "#")
		keywords := strings.Join(e.ErrorKind.KeywordPath(), "/")
		return append(found, strings.TrimSuffix("#"+place+"/"+keywords, "/"))
	}
	for _, cause := range e.Causes {
		found = faults(cause, found)
	}
	return found
}

func (f *jsonFormat) name([]int) string { return f.title }
