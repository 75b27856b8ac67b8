package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/identity"
)

// Settings are the options of one handler.
type Settings struct {
	Policy
	Store             dedup.Store
	Scope             string
	Name              string
	Tenant            identity.Extractor
	ID                identity.Extractor
	Source            *TypeSource
	Retention         time.Duration
	Timeout           time.Duration
	Fingerprint       identity.FingerprintFunc
	SecondSecret      []byte // of fingerprints, accepted beside the first; nil: none
	NoContentCheck    bool   // contents of copies are not compared
	Tombstones        bool
	ContinueAfterDead bool
	TxPerEvent        bool
	SameKey           bool
	MaxBatch          int
	Concurrency       int
	Rate              int
	Per               time.Duration
	BreakAfter        int // runs in a row that open the circuit breaker; zero: no breaker
	BreakFor          time.Duration
	Problems          []error
}

// TypeSource is an extractor of types. Handlers with the same TypeSource share a look-up.
type TypeSource struct{ identity.Extractor }

var standardType = &TypeSource{identity.StandardType()}

const (
	// DefaultMaxBatch is the default of Settings.MaxBatch.
	DefaultMaxBatch = 512
	maxMaxBatch     = 4096
)

// InvalidExtractor is the advice for an extractor that is the zero value.
const InvalidExtractor = "the extractor is not set, or FromFunc lacks a descriptor or a function"

// DefaultSettings returns the settings of a handler without options.
func DefaultSettings() Settings {
	return Settings{
		ID:        identity.StandardID(),
		Source:    standardType,
		Retention: 7 * 24 * time.Hour,
		Timeout:   30 * time.Second,
		MaxBatch:  DefaultMaxBatch,
		Policy:    Policy{Retry: withDefaults(idemtype.RetryPolicy{})},
	}
}

// Complete sets the defaults of the retry policy and notes the mistakes in the settings.
func (s *Settings) Complete() {
	s.Retry = withDefaults(s.Retry)
	if s.Unavailable.RunFor > 0 {
		s.Unavailable.After = cmp.Or(s.Unavailable.After, defaultAfter)
	}
	s.Problems = append(s.Problems, s.validate()...)
}

func (s *Settings) validate() (problems []error) {
	if err := validateRetry(s.Retry); err != nil {
		problems = append(problems, err)
	}
	if s.ID.Find == nil {
		problems = append(problems, errors.New("ID: "+InvalidExtractor))
	}
	if s.Source.Find == nil {
		problems = append(problems, errors.New("Type: "+InvalidExtractor))
	}
	if s.Retention <= 0 {
		problems = append(problems, fmt.Errorf("Retention must be positive, not %s", s.Retention))
	}
	if s.Timeout <= 0 {
		problems = append(problems, fmt.Errorf("Timeout must be positive, not %s", s.Timeout))
	}
	if s.MaxBatch < 1 || s.MaxBatch > maxMaxBatch {
		problems = append(problems,
			fmt.Errorf("MaxBatch must be between 1 and %d, not %d", maxMaxBatch, s.MaxBatch))
	}
	if s.SecondSecret != nil {
		if err := identity.CheckSecret("SecondSecret", s.SecondSecret); err != nil {
			problems = append(problems, err)
		}
	}
	if s.Concurrency < 0 || s.Rate < 0 || s.Rate > 0 && s.Per <= 0 {
		problems = append(problems, errors.New("Concurrency and RateLimit must be positive"))
	}
	if s.BreakAfter < 0 || s.BreakFor < 0 || (s.BreakAfter > 0) != (s.BreakFor > 0) {
		problems = append(problems, fmt.Errorf(
			"CircuitBreaker wants a positive number of runs and a positive wait, not %d and %s",
			s.BreakAfter, s.BreakFor))
	}
	problems = append(problems, s.Policy.validate()...)
	if err := checkDelays(s); err != nil {
		problems = append(problems, err)
	}
	return problems
}

func checkDelays(s *Settings) error {
	if s.Mode == Blocking {
		return nil
	}
	if len(s.Delays) == 0 || len(s.Delays) > maxDelays {
		return fmt.Errorf(
			"RetryTopics and KeyOrdered want 1 to %d delays, not %d", maxDelays, len(s.Delays),
		)
	}
	for i, d := range s.Delays {
		if d < minDelay || d%minDelay != 0 || i > 0 && d <= s.Delays[i-1] {
			return errors.New(
				"the delays of RetryTopics and KeyOrdered must ascend, in whole milliseconds",
			)
		}
	}
	return nil
}

const (
	minDelay  = time.Millisecond
	maxDelays = 16
	// maxReschedules limits the delayed retries of an event. Retries after RetryAfter count as no
	// attempt (T-08).
	maxReschedules = 1000
)

// fingerprintOf returns the fingerprints of a message under the secrets of the handler.
func (s *Settings) fingerprintOf(
	ctx context.Context, m *idemtype.Message,
) (identity.Pair, error) {
	switch {
	case s.Fingerprint != nil:
		return s.Fingerprint(ctx, m, s.SecondSecret)
	case s.NoContentCheck:
		return identity.Pair{}, nil
	default:
		return identity.Pair{First: dedup.Checksum(m.Value)}, nil
	}
}
