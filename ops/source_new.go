package ops

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/deadletters"
)

// newSources makes the sources of a configuration, without network access.
func newSources(cfg Config) sources {
	s := sources{monitor: cfg.Monitor, doctor: cfg.Doctor}
	ledgers := storesOf(cfg.Stores, cfg.StoreName)
	if cfg.Outbox != nil {
		s.outbox = &outboxSource{cfg.Outbox}
	}
	if len(ledgers) > 0 {
		s.claims = &claimSource{ledgers, cfg.Scopes}
	}
	var kafka *kafkaSource
	if cfg.Consumer.Group != "" && (cfg.Client != nil || len(cfg.Consumer.Brokers) > 0) {
		kafka = newKafkaSource(cfg)
		s.deadLetters = &deadLetterSource{kafka: kafka, stores: operators(ledgers), cfg: cfg}
		s.group = &groupSource{kafka, cfg}
		s.close = kafka.closeOwn
	}
	if all := operators(ledgers); len(all) > 0 {
		s.events = &eventSource{stores: all, scopes: cfg.Scopes, deadLetters: s.deadLetters}
	}
	if len(ledgers) > 0 && len(cfg.Consumer.Topics) > 0 {
		s.deferred = &deferredSource{stores: ledgers, cfg: cfg, kafka: kafka}
	}
	return s
}

// storesOf names stores.
func storesOf(
	stores []dedup.Store, given func(dedup.Store) string,
) (all []deadletters.NamedStore) {
	seen := map[string]int{}
	for _, s := range stores {
		name := ""
		if given != nil {
			name = given(s)
		}
		name = cmp.Or(name, nameOf(s))
		if seen[name]++; seen[name] > 1 {
			name = fmt.Sprintf("%s (%d)", name, seen[name])
		}
		all = append(all, deadletters.NamedStore{Name: name, Store: s})
	}
	return all
}

// nameOf returns the name of a kind of store, without an address, because an address may contain a
// password.
func nameOf(s dedup.Store) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", s), "*")
	pkg, _, _ := strings.Cut(name, ".")
	switch pkg {
	case "pgstore":
		return "Postgres"
	case "redisstore":
		return "Redis"
	case "dynamostore":
		return "DynamoDB"
	case "memstore":
		return "memory"
	case "sqlstore":
		return "SQL"
	}
	return name
}

// operators are the stores that are a dedup.Operator.
func operators(all []deadletters.NamedStore) (some []deadletters.NamedStore) {
	for _, l := range all {
		if _, ok := l.Store.(dedup.Operator); ok {
			some = append(some, l)
		}
	}
	return some
}

// The intervals between calls of a source. The doctor sends many requests, to all services.
const (
	keepFigures = 2 * time.Second
	keepTopics  = 5 * time.Second
	keepLists   = 10 * time.Second // a store may have to read all of a table for it
	keepDoctor  = time.Minute
	doctorLimit = 45 * time.Second
)

func newCells(bg *background, s *sources) cells {
	all := cells{
		topics: cellOf(
			bg, keepTopics, bg.timeout, s.deadLetters != nil,
			func(ctx context.Context) ([]string, error) { return s.deadLetters.topics(ctx) },
		),
		group: cellOf(
			bg, keepFigures, bg.timeout, s.group != nil,
			func(ctx context.Context) (groupState, error) { return s.group.read(ctx) },
		),
		claims: cellOf(
			bg, keepLists, bg.timeout, s.claims != nil,
			func(ctx context.Context) ([]storeClaims, error) { return s.claims.stuck(ctx) },
		),
		deferred: cellOf(
			bg, keepTopics, bg.timeout, s.deferred != nil,
			func(ctx context.Context) (deferredState, error) { return s.deferred.list(ctx) },
		),
		outbox: cellOf(
			bg, keepFigures, bg.timeout, s.outbox != nil,
			func(ctx context.Context) (outboxState, error) { return s.outbox.read(ctx) },
		),
		doctor: cellOf(bg, keepDoctor, doctorLimit, s.doctor != nil, s.doctor),
	}
	if all.claims != nil {
		all.claims.sparing = true
	}
	if all.deferred != nil { // a question for each partition
		all.deferred.sparing = true
	}
	return all
}

// cellOf is nil without a source.
func cellOf[T any](
	bg *background, keep, limit time.Duration, there bool, fetch func(context.Context) (T, error),
) *cell[T] {
	if !there {
		return nil
	}
	return &cell[T]{bg: bg, keep: keep, limit: limit, fetch: fetch}
}
