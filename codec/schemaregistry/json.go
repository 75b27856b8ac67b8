package schemaregistry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

type jsonFormat struct{ schema *jsonschema.Schema }

// noLoader refuses to load schemas from files and other addresses.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("it is no reference of the schema in the registry")
}

func parseJSON(text string, refs []reference) (format, error) {
	const main = "idem:///schema.json"
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	for _, ref := range refs {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(ref.source.Schema))
		if err != nil {
			return nil, fmt.Errorf("reference %s: %w", ref.name, err)
		}
		for _, at := range locations(main, ref.name) {
			if err := c.AddResource(at, doc); err != nil {
				return nil, fmt.Errorf("reference %s: %w", ref.name, err)
			}
		}
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	if err := c.AddResource(main, doc); err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	s, err := c.Compile(main)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	return &jsonFormat{s}, nil
}

// locations returns where a reference may be looked for: at its name, if that is an address, or
// beside the schema.
func locations(main, name string) []string {
	if strings.Contains(name, "://") {
		return []string{name}
	}
	return []string{strings.TrimSuffix(main, "schema.json") + strings.TrimPrefix(name, "/")}
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
