package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
)

// demoFile is the file of the demonstration in the current directory, unless -store names another.
const demoFile = "demo.db"

// demoRetention is how long the demonstration remembers its events.
const demoRetention = 7 * 24 * time.Hour

// openDemoStore opens the store of the demonstration and returns the path of its file.
func openDemoStore(ctx context.Context, url string) (*sqlstore.Store, string, error) {
	file, _ := sqlitePath(url)
	if file == "" {
		file = demoFile
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, "", err
	}
	store, err := sqlite.Open(ctx, file)
	return store, file, err
}

// earlier has the part of the plan that the store knows before a run: the handled events, and the
// values of the records that were given up.
type earlier struct {
	done map[event]bool
	dead map[string]bool
}

// recallAtOnce is the number of events in one call of the store.
const recallAtOnce = 200

// recall asks the store for the events of earlier runs.
func recall(ctx context.Context, store dedup.Store, p plan) (earlier, error) {
	known := earlier{done: make(map[event]bool), dead: make(map[string]bool)}
	operator, ok := store.(dedup.Operator)
	if !ok {
		return known, nil
	}
	poison := make(map[event]string)
	all := slices.Clone(p.events)
	for _, v := range p.poison {
		var n notification
		if json.NewDecoder(strings.NewReader(v)).Decode(&n) == nil && n.EventID != "" {
			e := event{n.Type, n.EventID}
			poison[e] = v
			all = append(all, e)
		}
	}
	for some := range slices.Chunk(all, recallAtOnce) {
		keys := make([]dedup.Key, len(some))
		for i, e := range some {
			keys[i] = dedup.Key{Scope: scope, Type: e.channel, ID: e.id}
		}
		records, err := operator.Inspect(ctx, keys...)
		if err != nil {
			return known, err
		}
		for _, r := range records {
			e := event{r.Key.Type, r.Key.ID}
			if r.State == dedup.Finished {
				known.done[e] = true
			}
			if r.State == dedup.GivenUp {
				known.dead[poison[e]] = true
			}
		}
	}
	return known, nil
}
