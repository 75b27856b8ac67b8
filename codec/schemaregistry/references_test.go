package schemaregistry_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/schemaregistry"
)

// holder is a schema that refers to version 1 of the subject inner, by the given names.
func holder(names ...string) sr.Schema {
	s := sr.Schema{Schema: `{"type":"object"}`, Type: sr.TypeJSON}
	for _, name := range names {
		s.References = append(s.References, sr.SchemaReference{Name: name, Subject: "inner", Version: 1})
	}
	return s
}

// Values of deleted schemas may still be in a topic.
func TestReferences_Deleted(t *testing.T) {
	server := fake(t)
	register(t, server.URL(), "inner", sr.Schema{Schema: `{"type":"integer"}`, Type: sr.TypeJSON})
	outer := holder("inner.json")
	outer.Schema = `{"properties":{"amount":{"$ref":"inner.json"}}}`
	id := register(t, server.URL(), "outer", outer)
	admin, err := sr.NewClient(sr.URLs(server.URL()))
	require.NoError(t, err)
	for _, subject := range []string{"outer", "inner"} {
		_, err := admin.DeleteSubject(t.Context(), subject, sr.SoftDelete)
		require.NoError(t, err)
	}
	value, err := new(sr.ConfluentHeader).AppendEncode(nil, id, nil)
	require.NoError(t, err)
	var got payment
	registry := open(t, count(t, server.URL()).URL)
	require.NoError(t, registry.Decode(t.Context(), record("e1", "paid", 1, append(value, `{"amount":7}`...)), &got))
	require.Equal(t, payment{Amount: 7}, got)
}

// A reference that the registry does not know makes the schema unusable for a while, after three
// questions. Any other answer does not decide about the event.
func TestReferences_Answers(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		answer string
		mark   string
	}{
		"subject unknown":   {404, `{"error_code":40401}`, ""},
		"version unknown":   {404, `{"error_code":40402}`, ""},
		"version deleted":   {404, `{"error_code":40406}`, ""},
		"404 of a path":     {404, `{"error_code":404}`, "unavailable"},
		"refused":           {403, `{"error_code":40301}`, "unavailable"},
		"200 without text":  {200, `{}`, "unavailable"},
		"error of a server": {500, `{"error_code":50001}`, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			server := fake(t)
			server.SeedSchema("inner", 1, 6, sr.Schema{Schema: `{}`, Type: sr.TypeJSON})
			server.SeedSchema("outer", 1, 7, holder("inner.json"))
			var asked atomic.Int32
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if !strings.HasPrefix(req.URL.Path, "/subjects/inner/") {
					server.Handler().ServeHTTP(w, req)
					return
				}
				asked.Add(1)
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.answer))
			}))
			defer proxy.Close()
			registry := open(t, proxy.URL)
			decode := func() {
				err := registry.Decode(t.Context(), record("e1", "paid", 1, []byte("\x00\x00\x00\x00\x07{}")), new(payment))
				require.ErrorContains(t, err, "schema ID 7")
				require.Equal(t, c.mark, idem.ErrorMark(err), "%v", err)
			}
			decode()
			first := asked.Load()
			decode()
			if c.mark == "" {
				require.EqualValues(t, 3, first)
				require.EqualValues(t, 3, asked.Load())
			}
			e, err := registry.Encoder(schemaregistry.EncoderConfig{Subject: "outer"})
			require.NoError(t, err)
			_, err = e.Encode(t.Context(), payment{})
			require.Equal(t, c.mark, idem.ErrorMark(err), "%v", err)
		})
	}
}

// A schema with too many references cannot be used, without another question.
func TestReferences_TooMany(t *testing.T) {
	server := fake(t)
	server.SeedSchema("inner", 1, 6, sr.Schema{Schema: `{}`, Type: sr.TypeJSON})
	names := make([]string, 257)
	for i := range names {
		names[i] = fmt.Sprintf("n%d.json", i)
	}
	server.SeedSchema("outer", 1, 7, holder(names...))
	server.SeedSchema("fits", 1, 8, holder(names[:256]...))
	c := count(t, server.URL())
	registry := open(t, c.URL)
	require.NoError(t, registry.Decode(t.Context(), record("e1", "paid", 1, []byte("\x00\x00\x00\x00\x08{}")), new(payment)))
	c.requests.Store(0)
	for range 2 {
		err := registry.Decode(t.Context(), record("e1", "paid", 1, []byte("\x00\x00\x00\x00\x07{}")), new(payment))
		require.ErrorContains(t, err, "schema ID 7 (JSON) cannot be used: it has more than 256 references")
		require.Empty(t, idem.ErrorMark(err))
		require.EqualValues(t, 257, c.requests.Load())
	}
	e, err := registry.Encoder(schemaregistry.EncoderConfig{Subject: "outer"})
	require.NoError(t, err)
	_, err = e.Encode(t.Context(), payment{})
	require.ErrorContains(t, err, "more than 256 references")
	require.Empty(t, idem.ErrorMark(err))
}

// The references of a Protobuf file are not used, so they are not asked for.
func TestReferences_Protobuf(t *testing.T) {
	server := fake(t)
	server.SeedSchema("inner", 1, 6, sr.Schema{Schema: `syntax = "proto3"; message Other {}`, Type: sr.TypeProtobuf})
	s := holder("other.proto")
	s.Schema, s.Type = `syntax = "proto3"; package google.protobuf; import "other.proto";
		message Timestamp { int64 seconds = 1; int32 nanos = 2; Other other = 3; }`, sr.TypeProtobuf
	server.SeedSchema("outer", 1, 7, s)
	c := count(t, server.URL())
	got := new(timestamppb.Timestamp)
	require.NoError(t, open(t, c.URL).Decode(t.Context(), record("e1", "paid", 1, []byte("\x00\x00\x00\x00\x07\x00\x08\x05")), got))
	require.EqualValues(t, 5, got.GetSeconds())
	require.EqualValues(t, 1, c.requests.Load())
}
