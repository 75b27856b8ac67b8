package dynamostore

import (
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/idem-go/idem/dedup"
)

const (
	// DefaultParallel is the number of concurrent requests of one call without [Parallel].
	DefaultParallel = 16
	// DefaultWatched is the number of claims that a store watches without [Watched].
	DefaultWatched = 65_536

	// maxResult leaves 16 KB of the 400 KB of an item for the other attributes.
	maxResult = 384 << 10
	// maxTries bounds the tries of a write that other writes overtake. With each lost try, a write
	// of another caller has succeeded.
	maxTries = 100
)

// Store keeps claims in a table of DynamoDB. Create a Store with [New]; the zero value cannot be
// used. A Store is safe for concurrent use, starts no goroutine that outlives a call, and needs
// no Close.
type Store struct {
	client   *dynamodb.Client
	table    string
	parallel int
	watched  int
	regional bool
	now      func() time.Time // wall clock and monotonic clock of this host
	watch    *watch
	births   births
}

var (
	_ dedup.Store         = (*Store)(nil)
	_ dedup.Looker        = (*Store)(nil)
	_ dedup.ResultLimiter = (*Store)(nil)
	_ dedup.Checker       = (*Store)(nil)
)

// Option is an option of [New].
type Option func(*Store)

// Parallel sets the maximum of concurrent requests of one call. Default [DefaultParallel]; less
// than 1 means the default. The HTTP client of the SDK keeps ten idle connections: let the
// client keep this number for each concurrent call.
func Parallel(n int) Option {
	return func(s *Store) {
		if n > 0 {
			s.parallel = n
		}
	}
}

// Watched sets the number of claims that the store watches for the end of their lease, at about
// 300 bytes each. Claims granted by this store are included. Default [DefaultWatched]; less than
// 1 means the default. Beyond that number, the claim of a crashed holder is taken over later,
// never earlier.
func Watched(n int) Option {
	return func(s *Store) {
		if n > 0 {
			s.watched = n
		}
	}
}

// OneRegion declares that all processes of the store use the table in one region. [Store.Check]
// then accepts a global table with eventually consistent replicas. With writers in two regions both
// may get Fresh, because the last write wins.
func OneRegion() Option { return func(s *Store) { s.regional = true } }

// New returns a store on a table made by [Migrate], or a similar one. New does not connect:
// [Store.Check] reports whether the table can be used. Use one store for each table and process,
// because a store watches the claims that callers wait for.
func New(client *dynamodb.Client, table string, opts ...Option) *Store {
	s := &Store{client: client, table: table, parallel: DefaultParallel, watched: DefaultWatched,
		now: time.Now}
	for _, o := range opts {
		o(s)
	}
	s.watch = newWatch(s.watched)
	return s
}

// MaxResult implements [dedup.ResultLimiter]: 384 KiB, because an item has at most 400 KB.
func (s *Store) MaxResult() int { return maxResult }

var (
	errLease     = errors.New("lease must be positive")
	errRetention = errors.New("retention must be positive")
	errContended = errors.New("the item changed before each write")
)

// keyError names the key of a request that failed.
func keyError(k dedup.Key, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("key %q: %w", k, err)
}
