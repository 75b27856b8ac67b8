package httpidem

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTransportHeader(t *testing.T) {
	ctx := t.Context()
	for name, c := range map[string]struct {
		transport Transport
		ctx       context.Context
		header    string
		want      string
		key       string
		err       error
	}{
		"bare": {ctx: WithKey(ctx, "order-42"), want: "order-42",
			key: "order-42"},
		"quoted": {transport: Transport{Quoted: true},
			ctx: WithKey(ctx, `a"b\c`), want: `"a\"b\\c"`, key: `a"b\c`},
		"own header":         {ctx: ctx, header: "mine", want: "mine", key: "mine"},
		"own header, quoted": {ctx: ctx, header: `"mi\"ne"`, want: `"mi\"ne"`, key: `mi"ne`},
		"WithKey replaces a header": {ctx: WithKey(ctx, "other"), header: "mine",
			want: "other", key: "other"},
		"WithKey replaces a header that is no key": {ctx: WithKey(ctx, "other"), header: "null",
			want: "other", key: "other"},
		"WithKey replaces a header, quoted": {transport: Transport{Quoted: true},
			ctx: WithKey(ctx, "other"), header: `"mine"`, want: `"other"`, key: "other"},
		"header has the key of WithKey": {ctx: WithKey(ctx, "mine"), header: `"mine";a=1`,
			want: `"mine";a=1`, key: "mine"},
		"header, and WithKey is empty": {ctx: WithKey(ctx, ""), header: "mine", want: "mine",
			key: "mine"},
		"WithKey is invalid beside a header": {ctx: WithKey(ctx, "null"), header: "mine",
			err: ErrKey},
		"empty is none": {ctx: WithKey(WithKey(ctx, "outer"), "")},
		"255 bytes": {ctx: WithKey(ctx, strings.Repeat("k", 255)),
			want: strings.Repeat("k", 255), key: strings.Repeat("k", 255)},
		"256 bytes":         {ctx: WithKey(ctx, strings.Repeat("k", 256)), err: ErrKey},
		"line break":        {ctx: WithKey(ctx, "a\r\nX-Evil: 1"), err: ErrKey},
		"no ASCII":          {ctx: WithKey(ctx, "schlüssel"), err: ErrKey},
		"bare with a space": {ctx: WithKey(ctx, "key "), err: ErrKey},
		"bare with a quote": {ctx: WithKey(ctx, `a"b`), err: ErrKey},
		"own header, no key at all": {
			ctx: ctx, header: "schlüssel", want: "schlüssel", key: "schlüssel",
		},
		"own header, parameters": {ctx: ctx, header: `"k";a=1`, want: `"k";a=1`, key: "k"},
		"bare with a comma":      {ctx: WithKey(ctx, "a,b"), err: ErrKey},
		"quoted with a comma": {transport: Transport{Quoted: true}, ctx: WithKey(ctx, "a,b"),
			want: `"a,b"`, key: "a,b"},
		"placeholder": {transport: Transport{Quoted: true}, ctx: WithKey(ctx, "null"),
			err: ErrKey},
		"bare that looks quoted": {ctx: WithKey(ctx, `"key"`), err: ErrKey},
		"quoted may have all those": {
			transport: Transport{Quoted: true}, ctx: WithKey(ctx, `"key" `), want: `"\"key\" "`,
			key: `"key" `,
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := answers(200)
			c.transport.Base = server
			r, err := http.NewRequestWithContext(c.ctx, http.MethodPost, "http://api.test/",
				strings.NewReader("x"))
			require.NoError(t, err)
			if c.header != "" {
				r.Header.Set(DefaultHeader, c.header)
			}
			before := r.Header.Clone()
			resp, err := c.transport.RoundTrip(r)
			require.Equal(t, before, r.Header, "the caller's request is the caller's")
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
				require.Empty(t, server.seen)
				return
			}
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			if c.want == "" {
				require.Regexp(t, uuid4, server.seen[0].key[0])
				return
			}
			require.Equal(t, []string{c.want}, server.seen[0].key)
			require.Equal(t, c.key, KeyOf(resp.Request))
		})
	}
}

// Several header lines are no key of their own, even if one of them is the key of the context.
func TestTransportHeaderLines(t *testing.T) {
	for name, c := range map[string]struct {
		own   string
		lines []string
		want  []string
	}{
		"without a key of the context": {lines: []string{"a", "b"}, want: []string{"a", "b"}},
		"the first is the key":         {own: "a", lines: []string{"a", "b"}, want: []string{"a"}},
		"the last is the key":          {own: "b", lines: []string{"a", "b"}, want: []string{"b"}},
		"an empty one":                 {own: "a", lines: []string{""}, want: []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := answers(200)
			r, err := http.NewRequestWithContext(WithKey(t.Context(), c.own), http.MethodPost,
				"http://api.test/", http.NoBody)
			require.NoError(t, err)
			r.Header[DefaultHeader] = c.lines
			resp, err := (&Transport{Base: server}).RoundTrip(r)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, c.want, server.seen[0].key)
			require.Equal(t, c.want[0], KeyOf(resp.Request))
		})
	}
}

// The server takes a header for the key in any spelling of its name.
func TestTransportHeaderSpelling(t *testing.T) {
	const lower, upper = "idempotency-key", "IDEMPOTENCY-KEY"
	for name, c := range map[string]struct {
		own    string
		header http.Header
		custom string // the name of the header, if another one
		want   []string
	}{
		"lower case":           {header: http.Header{lower: {"a"}}, want: []string{"a"}},
		"upper case":           {header: http.Header{upper: {"a"}}, want: []string{"a"}},
		"WithKey replaces it":  {own: "k", header: http.Header{lower: {"a"}}, want: []string{"k"}},
		"it has WithKey's key": {own: "a", header: http.Header{lower: {"a"}}, want: []string{"a"}},
		"two spellings, for the server to refuse": {
			header: http.Header{lower: {"a"}, DefaultHeader: {"b"}}, want: []string{"b", "a"},
		},
		"two spellings with one key are two lines": {
			header: http.Header{lower: {"a"}, DefaultHeader: {"a"}}, want: []string{"a", "a"},
		},
		"WithKey replaces two spellings": {
			own: "b", header: http.Header{lower: {"a"}, DefaultHeader: {"b"}}, want: []string{"b"},
		},
		"another name": {
			header: http.Header{"x-key": {"a"}}, custom: "x-KEY", want: []string{"a"},
		},
		"another header": {
			own: "k", header: http.Header{"idempotency-keys": {"a"}}, want: []string{"k"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			header := cmp.Or(c.custom, DefaultHeader)
			var got []string
			server := &fakeServer{script: func(_ int, r *http.Request) (*http.Response, error) {
				for name, lines := range r.Header {
					if strings.EqualFold(name, header) {
						got = append(got, lines...)
					}
				}
				return response(200), nil
			}}
			r, err := http.NewRequestWithContext(WithKey(t.Context(), c.own), http.MethodPost,
				"http://api.test/", http.NoBody)
			require.NoError(t, err)
			r.Header = c.header
			before := r.Header.Clone()
			resp, err := (&Transport{Base: server, Header: c.custom}).RoundTrip(r)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, c.want, got)
			require.Equal(t, c.want[0], KeyOf(resp.Request))
			require.Equal(t, before, r.Header, "the caller's request is the caller's")
		})
	}
}

// A transport behind another one sends the header that the outer transport has set, or has kept.
func TestTransportBehindAnother(t *testing.T) {
	for name, c := range map[string]struct {
		own    string // before the outer transport
		header []string
		middle func(r *http.Request) *http.Request // between the transports; nil: unchanged
		want   []string
	}{
		"quoted":         {own: "k", want: []string{`"k"`}},
		"no key at all":  {header: []string{"schlüssel"}, want: []string{"schlüssel"}},
		"another header": {header: []string{"null"}, want: []string{"null"}},
		"two lines":      {header: []string{"a", "b"}, want: []string{"a", "b"}},
		"two lines and WithKey": {
			own: "a", header: []string{"a", "b"}, want: []string{`"a"`},
		},
		"two lines and WithKey between": {
			header: []string{"a", "b"}, middle: withKey("a"), want: []string{"a"},
		},
		"two lines and an empty WithKey between": {
			header: []string{"a", "b"}, middle: withKey(""), want: []string{"a", "b"},
		},
		"two lines between": {
			header: []string{"a"}, middle: withHeader("b", "c"), want: []string{"b", "c"},
		},
		"WithKey, and two lines between": {
			own: "a", header: []string{"a"}, middle: withHeader("b", "c"), want: []string{"a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := answers(200)
			r, err := http.NewRequestWithContext(WithKey(t.Context(), c.own), http.MethodPost,
				"http://api.test/", http.NoBody)
			require.NoError(t, err)
			if c.header != nil {
				r.Header[DefaultHeader] = c.header
			}
			inner := &Transport{Base: &Transport{Base: server}}
			between := func(_ int, r *http.Request) (*http.Response, error) {
				if c.middle != nil {
					r = c.middle(r)
				}
				return inner.RoundTrip(r)
			}
			outer := &Transport{Quoted: true, Base: &fakeServer{script: between}}
			resp, err := outer.RoundTrip(r)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, c.want, server.seen[0].key)
		})
	}
}

func withKey(key string) func(*http.Request) *http.Request {
	return func(r *http.Request) *http.Request {
		return r.WithContext(WithKey(r.Context(), key))
	}
}

func withHeader(lines ...string) func(*http.Request) *http.Request {
	return func(r *http.Request) *http.Request {
		r = r.Clone(r.Context())
		r.Header[DefaultHeader] = lines
		return r
	}
}
