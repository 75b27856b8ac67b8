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
// ID is unknown. Every other answer is an error. [idem.Decoder] explains the use.
//
// A refusal (401, 403) is an error too, since the credentials may have expired. Then events wait
// and are not dead-lettered. So give the credentials the right to read schema ID 1. Without that
// right, events of other refused schemas wait without a limit.
func (r *Registry) Ping(ctx context.Context) error {
	if _, err := r.byID(ctx, 1); err != nil && !isUnknown(err) {
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
	source, err := ask(ctx, func() (sr.Schema, error) { return r.byID(ctx, id) })
	switch {
	case isUnknown(err):
		return nil, r.believe(id, fmt.Errorf("schema ID %d is unknown to %s", id, r.name))
	case err != nil:
		return nil, r.unavailable(id, err)
	}
	refs, err := r.references(ctx, source)
	var s *schema
	switch {
	case err == nil:
		s = parse(id, source, refs, r.readers)
	case errors.Is(err, errReferences):
		s = &schema{id: id, kind: source.Type, err: unusable(id, source.Type, err)}
	case isAbsent(err):
		return nil, r.believe(id, unusable(id, source.Type, err))
	default:
		return nil, r.unavailable(id, err)
	}
	r.known.put(id, s)
	return s, nil
}

// believe keeps the answer that a schema, or one that it needs, is unknown. believe returns err.
func (r *Registry) believe(id int, err error) error {
	r.unknown.put(id, unknownID{err, time.Now().Add(r.cfg.UnknownFor)})
	return err
}

func (r *Registry) unavailable(id int, err error) error {
	return idem.Unavailable(fmt.Errorf("%s: schema ID %d: %w", r.name, id, err))
}

const (
	unknownAsks  = 3 // before an unknown ID is believed
	unknownPause = 250 * time.Millisecond
)

// ask asks for a schema. A node of the registry that lags behind another does not know a new schema
// for a moment. So a schema counts as unknown only after unknownAsks such answers.
func ask[S any](ctx context.Context, question func() (S, error)) (s S, err error) {
	for try := 1; ; try++ {
		s, err = question()
		if !isAbsent(err) || try == unknownAsks {
			return s, err
		}
		timer := time.NewTimer(unknownPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return s, ctx.Err() //nolint:wrapcheck // the caller adds the question
		}
	}
}

// errNoSchema means that an answer is valid JSON without a schema, such as {} of a proxy.
var errNoSchema = errors.New("the answer has no schema")

// byID asks once for the schema with that ID.
func (r *Registry) byID(ctx context.Context, id int) (sr.Schema, error) {
	s, err := r.client.SchemaByID(ctx, id)
	if err == nil && s.Schema == "" {
		err = errNoSchema
	}
	return s, err //nolint:wrapcheck // the caller adds the question
}

// referred asks once for a schema that another one refers to. The values of a deleted schema may
// still be in the topic, so that deleted schemas count too.
func (r *Registry) referred(ctx context.Context, ref sr.SchemaReference) (sr.SubjectSchema, error) {
	s, err := r.client.SchemaByVersion(sr.WithParams(ctx, sr.ShowDeleted), ref.Subject, ref.Version)
	if err == nil && s.Schema.Schema == "" {
		err = errNoSchema
	}
	return s, err //nolint:wrapcheck // the caller adds the question
}

// isUnknown reports whether the error is the registry's answer that the schema does not exist. Any
// other 404, for example of a proxy, is no such answer.
func isUnknown(err error) bool {
	var answer *sr.ResponseError
	return errors.As(err, &answer) && answer.ErrorCode == sr.ErrSchemaNotFound.Code
}

// isAbsent reports whether the error is the registry's answer that the schema with an ID, or a
// version of a subject, does not exist.
func isAbsent(err error) bool {
	var answer *sr.ResponseError
	return errors.As(err, &answer) && absent(answer.ErrorCode)
}

func absent(code int) bool {
	switch code {
	case sr.ErrSubjectNotFound.Code, sr.ErrVersionNotFound.Code, sr.ErrSchemaNotFound.Code,
		sr.ErrSchemaVersionSoftDeleted.Code:
		return true
	}
	return false
}

// reference is a schema that another one refers to by name.
type reference struct {
	name   string
	source sr.Schema
}

// errReferences means that a schema has more references than this package follows.
var errReferences = fmt.Errorf("it has more than %d references", maxRefs)

// references returns the schemas that s refers to, those of references before the ones that need
// them. Protobuf needs none, since the Go types have the descriptors.
func (r *Registry) references(ctx context.Context, s sr.Schema) ([]reference, error) {
	if s.Type == sr.TypeProtobuf {
		return nil, nil
	}
	var all []reference
	seen := make(map[string]bool)
	var visit func(s sr.Schema) error
	visit = func(s sr.Schema) error {
		for _, ref := range s.References {
			if seen[ref.Name] {
				continue
			}
			if len(seen) == maxRefs {
				return errReferences
			}
			seen[ref.Name] = true
			found, err := ask(ctx, func() (sr.SubjectSchema, error) { return r.referred(ctx, ref) })
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
