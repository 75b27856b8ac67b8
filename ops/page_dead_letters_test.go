package ops

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Older dead letters than those shown are a link away, with the same filter, and no dead letter
// between the two is left out.
func TestDeadLetters_Older(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, int(250*time.Millisecond), time.UTC)
	l := &deadLettersView{Filter: deadLetterFilter{Topic: "a.g.dlq", Class: "permanent", ID: "a&b"}, Since: "2h"}
	l.Page.Value.Rows = []deadLetterRow{{Failed: at.Add(time.Second)}, {Failed: at}, {Failed: at.Add(time.Minute)}}
	require.Empty(t, l.older(), "these are all")
	l.Page.Value.More = true
	name, query, _ := strings.Cut(l.older(), "?")
	require.Equal(t, "./dead-letters", name)
	q, err := url.ParseQuery(query)
	require.NoError(t, err)
	until, err := parseTime(time.Now(), q.Get("until"))
	require.NoError(t, err)
	require.Equal(t, at.Add(time.Millisecond), until, "dead letters of the same millisecond may not have been shown")
	q.Del("until")
	require.Equal(t, url.Values{"topic": {"a.g.dlq"}, "class": {"permanent"}, "id": {"a&b"}, "since": {"2h"}}, q)
}
