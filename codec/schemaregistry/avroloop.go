package schemaregistry

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hamba/avro/v2"
)

// A record loops if it contains itself. The Avro library builds the code that skips a field at
// once, through records, arrays and maps, and ends at a union only. To skip a field with a record
// that loops without a union takes the whole stack and ends the process, which no recover stops. To
// resolve two schemas with loops does the same, with or without a union.

// loops reports whether a record in s contains itself.
func loops(s avro.Schema) bool {
	return (&loopSearch{unions: true}).from(s)
}

// loopsAtOnce reports whether a record in s contains itself without a union in between.
func loopsAtOnce(s avro.Schema) bool {
	return (&loopSearch{}).from(s)
}

// loopSearch goes through a schema, depth first.
type loopSearch struct {
	unions bool                        // a loop may go through a union
	open   map[*avro.RecordSchema]bool // true: the search is inside; false: searched
	later  []avro.Schema               // behind unions, if no loop may go through them
}

func (l *loopSearch) from(s avro.Schema) bool {
	l.open, l.later = make(map[*avro.RecordSchema]bool), []avro.Schema{s}
	for len(l.later) > 0 {
		s, l.later = l.later[0], l.later[1:]
		if l.visit(s) {
			return true
		}
	}
	return false
}

func (l *loopSearch) visit(s avro.Schema) bool {
	switch s := s.(type) {
	case *avro.RefSchema:
		return l.visit(s.Schema())
	case *avro.ArraySchema:
		return l.visit(s.Items())
	case *avro.MapSchema:
		return l.visit(s.Values())
	case *avro.UnionSchema:
		if l.unions {
			return slices.ContainsFunc(s.Types(), l.visit)
		}
		l.later = append(l.later, s.Types()...)
	case *avro.RecordSchema:
		if open, seen := l.open[s]; seen {
			return open
		}
		l.open[s] = true
		defer func() { l.open[s] = false }()
		return slices.ContainsFunc(s.Fields(), func(f *avro.Field) bool { return l.visit(f.Type()) })
	}
	return false
}

// skipCheck looks for fields that a Go type lacks and that cannot be skipped.
type skipCheck struct {
	seen map[recordType]bool
}

type recordType struct {
	record *avro.RecordSchema
	typ    reflect.Type
}

// checkSkips returns an error if decoding s into a value of type t would skip a field whose type
// loops at once.
func checkSkips(s avro.Schema, t reflect.Type) error {
	return (&skipCheck{seen: make(map[recordType]bool)}).visit(s, t)
}

func (c *skipCheck) visit(s avro.Schema, t reflect.Type) error {
	if union, ok := s.(*avro.UnionSchema); ok {
		return c.union(union, t)
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	kind := t.Kind()
	switch s := s.(type) {
	case *avro.RefSchema:
		return c.visit(s.Schema(), t)
	case *avro.ArraySchema:
		if kind == reflect.Slice {
			return c.visit(s.Items(), t.Elem())
		}
	case *avro.MapSchema:
		if kind == reflect.Map {
			return c.visit(s.Values(), t.Elem())
		}
	case *avro.RecordSchema:
		if kind == reflect.Struct {
			return c.record(s, t)
		}
	}
	return nil // a map takes all fields
}

var unionConverter = reflect.TypeFor[avro.UnionConverter]()

func (c *skipCheck) union(s *avro.UnionSchema, t reflect.Type) error {
	if t.Implements(unionConverter) || reflect.PointerTo(t).Implements(unionConverter) {
		return nil // it takes the value as a map
	}
	for _, branch := range s.Types() {
		if err := c.visit(branch, t); err != nil {
			return err
		}
	}
	return nil
}

func (c *skipCheck) record(s *avro.RecordSchema, t reflect.Type) error {
	key := recordType{s, t}
	if c.seen[key] {
		return nil
	}
	c.seen[key] = true
	fields := avroFields(t)
	for _, f := range s.Fields() {
		into := fields[f.Name()]
		for _, alias := range f.Aliases() {
			if into == nil {
				into = fields[alias]
			}
		}
		if into == nil {
			if loopsAtOnce(f.Type()) {
				return fmt.Errorf("field %s of %s is recursive and cannot be skipped: %s needs a field for it",
					f.Name(), s.FullName(), t)
			}
			continue
		}
		if err := c.visit(f.Type(), into); err != nil {
			return err
		}
	}
	return nil
}

// avroFields returns the types of a struct's fields by the names that the Avro library knows them
// by. Fields of embedded structs count too. If two have one name, the outer or first one counts.
func avroFields(t reflect.Type) map[string]reflect.Type {
	all, seen := make(map[string]reflect.Type), make(map[reflect.Type]bool)
	for structs := []reflect.Type{t}; len(structs) > 0; structs = structs[1:] {
		outer := structs[0]
		if seen[outer] {
			continue
		}
		seen[outer] = true
		for i := range outer.NumField() {
			f := outer.Field(i)
			if f.Anonymous {
				if f.Type.Kind() == reflect.Pointer {
					f.Type = f.Type.Elem()
				}
				if f.Type.Kind() == reflect.Struct {
					structs = append(structs, f.Type)
				}
				continue
			}
			name := f.Name
			if tag, ok := f.Tag.Lookup("avro"); ok {
				name, _, _ = strings.Cut(tag, ",")
			}
			if f.IsExported() && all[name] == nil {
				all[name] = f.Type
			}
		}
	}
	return all
}
