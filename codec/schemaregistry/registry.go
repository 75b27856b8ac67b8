package schemaregistry

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/idem-go/idem"
)

// Registry is a client of a schema registry, and an [idem.Decoder]. Create one for each registry
// and use it for all handlers and encoders, so that they share its cache. Safe for concurrent use.
type Registry struct {
	cfg     Config
	name    string
	client  *sr.Client
	readers map[string]avro.Schema
	known   *bounded[int, *schema]
	unknown *bounded[int, unknownID]
	asking  flights[int, *schema]
	slots   chan struct{} // questions at a time
}

type unknownID struct {
	err   error
	until time.Time
}

const (
	maxUnknown = 1000 // IDs that are known to be unknown
	maxAsking  = 16   // questions at a time
	maxRefs    = 256  // references of one schema, in all
)

// New returns a Registry. The error joins the mistakes in cfg. New does not use the network.
func New(cfg Config) (*Registry, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	readers, err := cfg.readers()
	if err != nil {
		return nil, err
	}
	client, err := cfg.client()
	if err != nil {
		return nil, err
	}
	var hosts []string
	for _, u := range cfg.URLs {
		if parsed, err := url.Parse(u); err == nil {
			hosts = append(hosts, parsed.Host)
		}
	}
	return &Registry{
		cfg: cfg, name: "schema registry " + strings.Join(hosts, ", "), client: client,
		readers: readers, known: newBounded[int, *schema](cfg.MaxSchemas),
		unknown: newBounded[int, unknownID](maxUnknown), slots: make(chan struct{}, maxAsking),
	}, nil
}

// String returns the hosts of the registry, for logs and the status.
func (r *Registry) String() string { return r.name }

// Ping asks for schema ID 1 and returns nil if the registry knows the schema, or answers that the
// ID is unknown. [idem.Decoder] explains the use.
func (r *Registry) Ping(ctx context.Context) error {
	if _, err := r.client.SchemaByID(ctx, 1); err != nil && !isUnknown(err) {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	return nil
}

// schema returns the schema with that ID, from the cache if ctx has ended.
func (r *Registry) schema(ctx context.Context, id int) (*schema, error) {
	if s, ok := r.known.get(id); ok {
		return s, s.err
	}
	if u, ok := r.unknown.get(id); ok && time.Now().Before(u.until) {
		return nil, u.err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("schema ID %d is not in the cache: %w", id, err)
	}
	s, err := r.asking.do(ctx, id, func(ctx context.Context) (*schema, error) {
		return r.fetch(ctx, id)
	})
	if err != nil {
		return nil, err
	}
	return s, s.err
}

// fetch asks the registry for a schema and its references, and caches the answer.
func (r *Registry) fetch(ctx context.Context, id int) (*schema, error) {
	if s, ok := r.known.get(id); ok { // a former question has just ended
		return s, nil
	}
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return nil, r.unavailable(id, ctx.Err())
	}
	source, err := r.ask(ctx, id)
	switch {
	case isUnknown(err):
		err = fmt.Errorf("schema ID %d is unknown to %s", id, r.name)
		r.unknown.put(id, unknownID{err, time.Now().Add(r.cfg.UnknownFor)})
		return nil, err
	case err != nil:
		return nil, r.unavailable(id, err)
	}
	refs, err := r.references(ctx, source)
	if err != nil {
		return nil, r.unavailable(id, err)
	}
	s := r.parse(id, source, refs)
	r.known.put(id, s)
	return s, nil
}

func (r *Registry) unavailable(id int, err error) error {
	return idem.Unavailable(fmt.Errorf("%s: schema ID %d: %w", r.name, id, err))
}

const (
	unknownAsks  = 3 // before an unknown ID is believed
	unknownPause = 250 * time.Millisecond
)

// ask asks for a schema. A node of the registry that lags behind another does not know a new schema
// for a moment. So an ID counts as unknown only after unknownAsks such answers.
func (r *Registry) ask(ctx context.Context, id int) (s sr.Schema, err error) {
	for try := 1; ; try++ {
		s, err = r.client.SchemaByID(ctx, id)
		if !isUnknown(err) || try == unknownAsks {
			return s, err //nolint:wrapcheck // the caller adds the question
		}
		timer := time.NewTimer(unknownPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return s, ctx.Err() //nolint:wrapcheck // as above
		}
	}
}

// isUnknown reports whether the error is the registry's answer that the schema does not exist. Any
// other 404, for example of a proxy, is no such answer.
func isUnknown(err error) bool {
	var answer *sr.ResponseError
	return errors.As(err, &answer) && answer.ErrorCode == sr.ErrSchemaNotFound.Code
}

// reference is a schema that another one refers to by name.
type reference struct {
	name   string
	source sr.Schema
}

// references returns the schemas that s refers to, those of references before the ones that need
// them.
func (r *Registry) references(ctx context.Context, s sr.Schema) ([]reference, error) {
	var all []reference
	seen := make(map[string]bool)
	var visit func(s sr.Schema) error
	visit = func(s sr.Schema) error {
		for _, ref := range s.References {
			if seen[ref.Name] {
				continue
			}
			if len(seen) == maxRefs {
				return fmt.Errorf("it has more than %d references", maxRefs)
			}
			seen[ref.Name] = true
			found, err := r.client.SchemaByVersion(ctx, ref.Subject, ref.Version)
			if err != nil {
				return fmt.Errorf("reference %s, version %d: %w", ref.Subject, ref.Version, err)
			}
			if err := visit(found.Schema); err != nil {
				return err
			}
			all = append(all, reference{ref.Name, found.Schema})
		}
		return nil
	}
	return all, visit(s)
}
