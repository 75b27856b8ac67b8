package schemaregistry

import (
	"fmt"
	"slices"

	"github.com/hamba/avro/v2"
)

// A schema names a record once and refers to it by its name from then on. The Avro library puts the
// record in place of each reference when it skips a field or resolves two schemas. With two
// references on each level, the types double with each level, and take all memory.

// The largest schemas that are used.
const (
	maxAvroTypes    = 1_000_000 // to be skipped at once
	maxAvroResolved = 100_000   // to be resolved: the library keeps each with its text
)

var (
	errAvroTypes = fmt.Errorf(
		"it has more than %d types with a record in place of each reference", maxAvroTypes)
	errAvroResolved = fmt.Errorf(
		"it has more than %d types with a record in place of each reference, which is too much to resolve",
		maxAvroResolved)
)

// avroTypes returns how many types the library makes at once when it skips s or a part of s: without
// those inside a union, which are made when a value has them. Beyond most, avroTypes returns most+1.
func avroTypes(s avro.Schema, most int) int {
	c := &typeCount{most: most, records: make(map[*avro.RecordSchema]int), later: []avro.Schema{s}}
	n := 0
	for len(c.later) > 0 {
		s, c.later = c.later[0], c.later[1:]
		n = max(n, c.of(s))
	}
	return n
}

// typeCount counts the types of each record once.
type typeCount struct {
	most    int
	records map[*avro.RecordSchema]int // 0 while the count is inside
	later   []avro.Schema              // inside unions
}

func (c *typeCount) of(s avro.Schema) int {
	switch s := s.(type) {
	case *avro.RefSchema:
		return c.of(s.Schema())
	case *avro.ArraySchema:
		return c.sum(1, c.of(s.Items()))
	case *avro.MapSchema:
		return c.sum(1, c.of(s.Values()))
	case *avro.UnionSchema:
		c.later = append(c.later, s.Types()...)
	case *avro.RecordSchema:
		if n, seen := c.records[s]; seen {
			return n
		}
		c.records[s] = 0
		n := 1
		for _, f := range s.Fields() {
			n = c.sum(n, c.of(f.Type()))
		}
		c.records[s] = n
		return n
	}
	return 1
}

func (c *typeCount) sum(a, b int) int { return min(a+b, c.most+1) }

// resolvedTypes returns about how many types the library makes when it resolves a writer's schema to
// a reader's. One of the two must not be recursive. Beyond most, resolvedTypes returns most+1.
func resolvedTypes(reader, writer avro.Schema, most int) int {
	c := &resolvedCount{most: most, pairs: make(map[[2]*avro.RecordSchema]int)}
	return c.of(reader, writer)
}

// resolvedCount counts the types of each pair of a reader's and a writer's record once.
type resolvedCount struct {
	most  int
	pairs map[[2]*avro.RecordSchema]int
}

func (c *resolvedCount) of(reader, writer avro.Schema) int {
	reader, writer = referred(reader), referred(writer)
	if w, ok := writer.(*avro.UnionSchema); ok {
		return c.all(w.Types(), func(branch avro.Schema) int { return c.of(reader, branch) })
	}
	if r, ok := reader.(*avro.UnionSchema); ok {
		return c.all(r.Types(), func(branch avro.Schema) int { return c.of(branch, writer) })
	}
	switch w := writer.(type) {
	case *avro.ArraySchema:
		if r, ok := reader.(*avro.ArraySchema); ok {
			return min(1+c.of(r.Items(), w.Items()), c.most+1)
		}
	case *avro.MapSchema:
		if r, ok := reader.(*avro.MapSchema); ok {
			return min(1+c.of(r.Values(), w.Values()), c.most+1)
		}
	case *avro.RecordSchema:
		if r, ok := reader.(*avro.RecordSchema); ok && sameName(r, w) {
			return c.record(r, w)
		}
	}
	return 1
}

func (c *resolvedCount) record(r, w *avro.RecordSchema) int {
	pair := [2]*avro.RecordSchema{r, w}
	if n, seen := c.pairs[pair]; seen {
		return n
	}
	n := 1 + len(r.Fields())
	for _, wf := range w.Fields() {
		for _, rf := range r.Fields() {
			if rf.Name() == wf.Name() || slices.Contains(rf.Aliases(), wf.Name()) {
				n = min(n+c.of(rf.Type(), wf.Type()), c.most+1)
				break
			}
		}
	}
	c.pairs[pair] = n
	return n
}

func (c *resolvedCount) all(types avro.Schemas, of func(avro.Schema) int) int {
	n := 1
	for _, s := range types {
		n = min(n+of(s), c.most+1)
	}
	return n
}

// sameName reports whether the library resolves a writer's record to a reader's.
func sameName(reader, writer *avro.RecordSchema) bool {
	return reader.Name() == writer.Name() || slices.Contains(reader.Aliases(), writer.FullName())
}

// referred returns the schema that a reference stands for.
func referred(s avro.Schema) avro.Schema {
	if ref, ok := s.(*avro.RefSchema); ok {
		return ref.Schema()
	}
	return s
}
