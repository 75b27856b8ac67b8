package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
)

// A reader pastes the program of the README into an empty module, with the commands of the README,
// builds it, and runs it twice. Of all copies of an event, one is handled, also after the restart.
func TestREADMEProgram_Idempotent(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program: not with -short")
	}
	page := readPage(t, "README.md")
	dir := t.TempDir()
	makeModule(t, dir, page)

	client, brokers := openKafka(t, "payments")
	admin := kadm.NewClient(client)
	var out output
	for start := range 2 {
		for i := range 3 { // under other keys, and so in other partitions
			produce(t, client, fmt.Sprint(start, i))
		}
		stop := startProgram(t, dir, &out, nil, brokers...)
		waitForCommits(t, admin, "orders", "payments")
		stop()
		require.Equal(t, 1, strings.Count(out.String(), "mail to ann@example.com"), "%s", out.String())
	}
	require.Equal(t, 995, balance(t, filepath.Join(dir, "shop.db")))
	ends, err := admin.ListEndOffsets(t.Context(), "payments.orders.dlq")
	require.NoError(t, err)
	ends.Each(func(o kadm.ListedOffset) { require.Zero(t, o.Offset, "dead letters") })
}
