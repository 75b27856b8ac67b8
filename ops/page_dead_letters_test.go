package ops

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Older dead letters than those shown are a link away, with the same filter. The link has the place
// of the last one, because others may have failed at its time.
func TestDeadLetters_Older(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 250_000_001, time.UTC)
	l := &deadLettersView{Filter: deadLetterFilter{Topic: "a.g.dlq", Class: "permanent", ID: "a&b"}, Since: "2h", Until: "1h"}
	last := deadLetterRow{deadLetterPlace: deadLetterPlace{"a.g.dlq", 3, 17}, Failed: at}
	l.Page.Value.Rows = []deadLetterRow{{Failed: at.Add(time.Minute)}, {Failed: at}, last}
	require.Empty(t, l.older(), "these are all")
	l.Page.Value.More = true
	name, query, _ := strings.Cut(l.older(), "?")
	require.Equal(t, "./dead-letters", name)
	q, err := url.ParseQuery(query)
	require.NoError(t, err)
	after, err := parseAfter("a.g.dlq", q.Get("after"))
	require.NoError(t, err)
	require.Equal(t, &last, after)
	q.Del("after")
	require.Equal(t, url.Values{"topic": {"a.g.dlq"}, "class": {"permanent"}, "id": {"a&b"}, "since": {"2h"}, "until": {"1h"}}, q)

	after, err = parseAfter("a.g.dlq", "")
	require.NoError(t, err)
	require.Nil(t, after)
	for _, text := range []string{"x", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z/1", "2026-01-31T12:00:00Z/1/x", "/1/2"} {
		_, err := parseAfter("a.g.dlq", text)
		require.Error(t, err, text)
	}
	s := serve(t, quietConfig(), sources{deadLetters: newFakeDeadLetters()})
	require.Contains(t, s.get("dead-letters?after=x").body, "The link to older dead letters is broken")
}
