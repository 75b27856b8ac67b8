package schemaregistry

import (
	"reflect"
	"testing"

	"github.com/hamba/avro/v2"
	"github.com/stretchr/testify/require"
)

const (
	plainRecord = `{"type":"record","name":"P","fields":[{"name":"a","type":{"type":"record","name":"Q","fields":[]}},
		{"name":"b","type":"Q"},{"name":"c","type":["null",{"type":"array","items":"Q"}]}]}`
	treeRecord = `{"type":"record","name":"Tree","fields":[{"name":"id","type":"string"},
		{"name":"children","type":{"type":"array","items":"Tree"}}]}`
	listRecord = `{"type":"record","name":"List","fields":[{"name":"id","type":"string"},{"name":"next","type":["null","List"]}]}`
	holder     = `{"type":"record","name":"Holder","fields":[{"name":"id","type":"string"},{"name":"tree","type":["null",` + treeRecord + `]}]}`
)

func TestLoops(t *testing.T) {
	for text, want := range map[string]struct{ any, atOnce bool }{
		`"string"`: {false, false}, plainRecord: {false, false}, treeRecord: {true, true}, listRecord: {true, false},
		holder: {true, true},
		`{"type":"record","name":"M","fields":[{"name":"m","type":{"type":"map","values":{"type":"array","items":"M"}}}]}`: {true, true},
		`{"type":"record","name":"S","fields":[{"name":"s","type":"S"}]}`:                                                  {true, true},
		`{"type":"record","name":"A","fields":[{"name":"b","type":["null",{"type":"record","name":"B","fields":[
			{"name":"a","type":{"type":"array","items":"A"}},{"name":"s","type":["B","null"]}]}]}]}`: {true, false},
	} {
		s, err := avro.ParseWithCache(text, "", &avro.SchemaCache{})
		require.NoError(t, err)
		require.Equal(t, want.any, loops(s), text)
		require.Equal(t, want.atOnce, loopsAtOnce(s), text)
	}
}

type (
	tree struct {
		ID       string `avro:"id"`
		Children []tree `avro:"children"`
	}
	pointers struct {
		ID       string      `avro:"id"`
		Children []*pointers `avro:"children"`
	}
	inner    struct{ Children []map[string]any }
	embedded struct {
		*inner
		ID string `avro:"id"`
	}
	hidden struct {
		ID       string `avro:"id"`
		children []hidden
	}
	deep struct {
		ID       string                   `avro:"id"`
		Children []struct{ Label string } `avro:"children"`
	}
	converted struct{}
)

func (*converted) FromAny(any) error   { return nil }
func (*converted) ToAny() (any, error) { return nil, nil }

func TestCheckSkips(t *testing.T) {
	_ = hidden{}.children
	aliased := `{"type":"record","name":"Tree","fields":[
		{"name":"kids","aliases":["children"],"type":{"type":"array","items":"Tree"}}]}`
	for name, c := range map[string]struct {
		schema string
		into   any
		text   string
	}{
		"all fields":          {treeRecord, new(tree), ""},
		"pointers":            {treeRecord, new(*pointers), ""},
		"a map":               {treeRecord, new(map[string]any), ""},
		"any":                 {treeRecord, new(any), ""},
		"an alias":            {aliased, new(tree), ""},
		"no field":            {treeRecord, new(struct{ ID string }), "field children of Tree"},
		"no field, a pointer": {treeRecord, new(*struct{ ID string }), "field children of Tree"},
		"an unexported field": {treeRecord, new(hidden), "field children of Tree"},
		"an inner record":     {treeRecord, new(deep), "field children of Tree"},
		"another name in Go":  {treeRecord, new(embedded), "field children of Tree"},
		"a union": {holder, new(struct {
			Tree *deep `avro:"tree"`
		}), "field children of Tree"},
		"no field for a union": {holder, new(struct{ ID string }), "field tree of Holder"},
		"a list":               {listRecord, new(struct{ ID string }), ""},
		"a converter": {holder, new(struct {
			Tree converted `avro:"tree"`
		}), ""},
		"other fields":           {plainRecord, new(struct{}), ""},
		"an array":               {`{"type":"array","items":` + treeRecord + `}`, new([]struct{}), "field children of Tree"},
		"a map of records":       {`{"type":"map","values":` + treeRecord + `}`, new(map[string]struct{}), "field children of Tree"},
		"a type that never fits": {treeRecord, new(int), ""},
	} {
		s, err := avro.ParseWithCache(c.schema, "", &avro.SchemaCache{})
		require.NoError(t, err)
		err = checkSkips(s, reflect.TypeOf(c.into).Elem())
		if c.text == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.text, name)
	}
}

// The outer field counts, and the fields of embedded structs count by their tags.
func TestAvroFields(t *testing.T) {
	type base struct {
		ID   int `avro:"id,omitempty"`
		Kids []int
	}
	type outer struct {
		*base
		ID string `avro:"id"`
		error
		lower int
	}
	_ = outer{}.lower
	require.Equal(t, map[string]reflect.Type{"id": reflect.TypeFor[string](), "Kids": reflect.TypeFor[[]int]()},
		avroFields(reflect.TypeFor[outer]()))
}
