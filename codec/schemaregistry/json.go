package schemaregistry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/twmb/franz-go/pkg/sr"
)

type jsonFormat struct{ schema *jsonschema.Schema }

// noLoader refuses to load schemas from files and other addresses.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("it is no reference of the schema in the registry")
}

// root is the address of the schema of a value.
const root = "idem:///schema.json"

func parseJSON(source sr.Schema, refs []reference) (format, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(source.Schema))
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.DefaultDraft(jsonschema.Draft7) // as Confluent's serializers
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
	return &jsonFormat{s}, nil
}

// addReferences adds each reference wherever one of its holders looks for it: at the name of the
// reference, resolved against the address and the $id of the holder.
func addReferences(c *jsonschema.Compiler, source sr.Schema, doc any, refs []reference) error {
	docs := make(map[string]any)
	for _, ref := range refs {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(ref.source.Schema))
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
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	if err != nil {
		return errors.New("the value is not valid JSON")
	}
	err = f.schema.Validate(v)
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
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

func (f *jsonFormat) name([]int) string { return f.schema.Title }
