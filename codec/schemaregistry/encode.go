package schemaregistry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/idem-go/idem"
)

// EncoderConfig is the configuration of an [Encoder].
type EncoderConfig struct {
	// Subject is the subject of the schemas. Required. Confluent's default name for the values of a
	// topic is "<topic>-value".
	Subject string
	// Schema is the text of the schema, which must be registered under Subject. The default is the
	// latest schema of the subject, see [Config].LatestFor.
	Schema string
	// Type is the type of Schema: "AVRO", "PROTOBUF" or "JSON". The default is "AVRO".
	Type string
	// References are the schemas that Schema refers to, which must be registered.
	References []Reference
	// Register registers Schema under Subject if it is not registered yet. The default is an error,
	// because producers of a production system usually must not change the contract.
	Register bool
}

// Reference names a version of a subject to which a schema refers.
type Reference struct {
	Name    string // in the schema: an Avro name, a Protobuf file, an address in a JSON Schema
	Subject string
	Version int
}

// Encoder encodes values for one subject. Safe for concurrent use.
type Encoder struct {
	registry *Registry
	cfg      EncoderConfig
	source   sr.Schema
	asking   flights[struct{}, *schema]

	mu      sync.Mutex
	current *schema
	until   time.Time // when the latest schema is asked for again
}

// Encoder returns an encoder. The error joins the mistakes in cfg. Encoder does not use the
// network.
func (r *Registry) Encoder(cfg EncoderConfig) (*Encoder, error) {
	e := &Encoder{registry: r, cfg: cfg, source: sr.Schema{Schema: cfg.Schema}}
	for _, ref := range cfg.References {
		e.source.References = append(e.source.References, sr.SchemaReference(ref))
	}
	var problems []error
	if cfg.Subject == "" {
		problems = append(problems, errors.New("EncoderConfig.Subject is empty: set it, for example to <topic>-value"))
	}
	if cfg.Schema == "" && (cfg.Register || cfg.Type != "") {
		problems = append(problems, errors.New("EncoderConfig.Register and Type need a Schema"))
	}
	if cfg.Type != "" {
		if err := e.source.Type.UnmarshalText([]byte(cfg.Type)); err != nil {
			problems = append(problems,
				fmt.Errorf("EncoderConfig.Type is %q, not AVRO, PROTOBUF or JSON", cfg.Type))
		}
	}
	return e, errors.Join(problems...)
}

// Encode returns v in Confluent's format: a zero byte, the ID of the schema, the index of the
// message for Protobuf, and the encoded value. The result is the Value of an [idem.Message] or of
// an outbox entry (Payload). Call Encode before a transaction begins, because the first call, and
// later ones after [Config].LatestFor, ask the registry.
//
// An error is marked with [idem.Unavailable] if the registry gives no valid answer. A handler that
// returns it waits. Other errors mean that v does not fit the schema, or that subject or schema are
// not registered.
func (e *Encoder) Encode(ctx context.Context, v any) ([]byte, error) {
	s, err := e.schema(ctx)
	if err != nil {
		return nil, err
	}
	payload, message, err := s.format.encode(v)
	if err != nil {
		return nil, fmt.Errorf("subject %s, schema ID %d: %w", e.cfg.Subject, s.id, err)
	}
	value, err := header.AppendEncode(make([]byte, 0, len(payload)+16), s.id, message)
	if err != nil {
		return nil, fmt.Errorf("subject %s, schema ID %d: %w", e.cfg.Subject, s.id, err)
	}
	return append(value, payload...), nil
}

// schema returns the schema to write with.
func (e *Encoder) schema(ctx context.Context) (*schema, error) {
	e.mu.Lock()
	current, until := e.current, e.until
	e.mu.Unlock()
	if current != nil && (e.cfg.Schema != "" || time.Now().Before(until)) {
		return current, nil
	}
	s, err := e.asking.do(ctx, struct{}{}, e.fetch)
	if err == nil {
		err = s.err
	}
	switch {
	case err == nil:
		e.keep(s)
		return s, nil
	case current != nil && idem.ErrorMark(err) == "unavailable":
		e.keep(current)
		return current, nil
	}
	return nil, err
}

func (e *Encoder) keep(s *schema) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.current, e.until = s, time.Now().Add(e.registry.cfg.LatestFor)
}

// fetch asks for the schema of the configuration, or for the latest one.
func (e *Encoder) fetch(ctx context.Context) (*schema, error) {
	found, err := e.find(ctx)
	if err != nil {
		return nil, e.failed(err)
	}
	refs, err := e.registry.references(ctx, found.Schema)
	if err != nil {
		return nil, e.failed(err)
	}
	return parse(found.ID, found.Schema, refs, nil), nil
}

func (e *Encoder) find(ctx context.Context) (found sr.SubjectSchema, err error) {
	client, subject := e.registry.client, e.cfg.Subject
	switch {
	case e.cfg.Schema == "":
		found, err = client.SchemaByVersion(ctx, subject, -1)
	case e.cfg.Register:
		found.Schema = e.source
		found.ID, err = client.RegisterSchema(ctx, subject, e.source, -1, -1)
	default:
		found, err = client.LookupSchema(ctx, subject, e.source)
		found.Schema = e.source // an answer may lack the type
	}
	if err == nil && (found.ID == 0 || found.Schema.Schema == "") {
		err = errNoSchema
	}
	return found, err //nolint:wrapcheck // the caller adds the question
}

// failed marks an error as an outage, unless it is an answer about subject or schema.
func (e *Encoder) failed(err error) error {
	text := fmt.Errorf("%s: subject %s: %w", e.registry.name, e.cfg.Subject, err)
	var answer *sr.ResponseError
	if errors.Is(err, errReferences) || errors.As(err, &answer) && final(answer.ErrorCode) {
		return text
	}
	return idem.Unavailable(text)
}

// final reports whether an error code of the registry is about the subject or the schema.
func final(code int) bool {
	switch code {
	case sr.ErrIncompatibleSchema.Code, sr.ErrInvalidSchema.Code, sr.ErrInvalidSubject.Code:
		return true
	}
	return absent(code)
}
