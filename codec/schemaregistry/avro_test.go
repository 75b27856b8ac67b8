package schemaregistry_test

import (
	"testing"

	"github.com/hamba/avro/v2"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/schemaregistry"
)

type node struct {
	ID       string `avro:"id"`
	Children []node `avro:"children"`
}

type link struct {
	ID   string `avro:"id"`
	Next *link  `avro:"next"`
}

const (
	avroNode = `{"type":"record","name":"Node","fields":[{"name":"id","type":"string"},
		{"name":"children","type":{"type":"array","items":"Node"}}]}`
	avroLink = `{"type":"record","name":"Link","fields":[{"name":"id","type":"string"},{"name":"next","type":["null","Link"]}]}`
	avroID   = `"fields":[{"name":"id","type":"string"}]}`
)

var (
	nodes = node{"a", []node{{"b", []node{{"c", []node{}}}}, {"d", []node{}}}}
	links = link{"a", &link{"b", &link{"c", nil}}}
)

// A recursive type decodes into a Go type with all its fields. Without one of them the value is
// undecodable, or its field is skipped: the process survives.
func TestAvro_Recursive(t *testing.T) {
	type id struct {
		ID string `avro:"id"`
	}
	for name, c := range map[string]struct {
		writer string
		reader []string
		value  any
		into   any
		want   any
		text   string
	}{
		"tree":                        {avroNode, nil, nodes, new(node), &nodes, ""},
		"tree, skipped":               {avroNode, nil, nodes, new(id), nil, "field children of Node is recursive"},
		"tree, skipped in any":        {avroNode, nil, nodes, ptr(any(new(id))), nil, "field children of Node is recursive"},
		"tree, same reader":           {avroNode, []string{avroNode}, nodes, new(node), &nodes, ""},
		"tree, same reader, skipped":  {avroNode, []string{avroNode}, nodes, new(id), nil, "field children of Node is recursive"},
		"tree, reader without":        {avroNode, []string{`{"type":"record","name":"Node",` + avroID}, nodes, new(id), nil, "cannot be used"},
		"tree, other reader":          {avroNode, []string{avroNode[:len(avroNode)-2] + `,{"name":"n","type":"int","default":0}]}`}, nodes, new(node), nil, "cannot be used"},
		"list":                        {avroLink, nil, links, new(link), &links, ""},
		"list, skipped":               {avroLink, nil, links, new(id), &id{"a"}, ""},
		"list, same reader":           {avroLink, []string{avroLink}, links, new(link), &links, ""},
		"list, reader without":        {avroLink, []string{`{"type":"record","name":"Link",` + avroID}, links, new(id), &id{"a"}, ""},
		"list, other reader":          {avroLink, []string{avroLink[:len(avroLink)-2] + `,{"name":"n","type":"int","default":0}]}`}, links, new(link), nil, "cannot be used"},
		"list, reader, writer is not": {`{"type":"record","name":"Link",` + avroID, []string{avroLink[:len(avroLink)-3] + `,"default":null}]}`}, id{"a"}, new(link), &link{"a", nil}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			address := fake(t).URL()
			at := register(t, address, subject(t), sr.Schema{Schema: c.writer})
			registry := open(t, address, func(cfg *schemaregistry.Config) { cfg.AvroReaders = c.reader })
			value, err := sr.Encode(c.value, new(sr.ConfluentHeader), at, nil, func(v any) ([]byte, error) {
				return avro.Marshal(avro.MustParse(c.writer), v)
			})
			require.NoError(t, err)
			err = registry.Decode(t.Context(), record("e1", "paid", 1, value), c.into)
			if c.text != "" {
				require.ErrorContains(t, err, c.text)
				require.ErrorContains(t, err, "schema ID")
				require.Empty(t, idem.ErrorMark(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, c.into)
		})
	}
}

func ptr[T any](v T) *T { return &v }

// AvroReaders are for reading alone: a schema that cannot be resolved to them is still written.
func TestAvro_EncoderWithoutReaders(t *testing.T) {
	type event struct {
		Amount int64 `avro:"amount"`
	}
	const (
		amount = `{"name":"amount","type":"long"}`
		begin  = `{"type":"record","name":"Event","fields":[`
	)
	server := fake(t)
	server.SeedSchema("s", 1, 7, sr.Schema{Schema: begin + amount + `]}`})
	registry := open(t, server.URL(), func(cfg *schemaregistry.Config) {
		cfg.AvroReaders = []string{begin + amount + `,{"name":"note","type":"string"}]}`}
	})
	e, err := registry.Encoder(schemaregistry.EncoderConfig{Subject: "s"})
	require.NoError(t, err)
	for range 2 {
		value, err := e.Encode(t.Context(), event{7})
		require.NoError(t, err)
		require.Equal(t, []byte{0, 0, 0, 0, 7, 14}, value)
		err = registry.Decode(t.Context(), record("e1", "paid", 1, value), new(event))
		require.ErrorContains(t, err, "resolve to the schema of Config.AvroReaders")
	}
}
