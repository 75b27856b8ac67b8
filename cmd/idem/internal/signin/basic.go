package signin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// Basic takes name and password of HTTP basic authentication, and compares them with a file in
// htpasswd form.
type Basic struct {
	path  string
	log   *slog.Logger
	now   func() time.Time
	key   []byte        // of digests, of this process
	slots chan struct{} // bounds the comparisons at once
	tries attempts

	mu      sync.Mutex
	known   *passwords
	failed  error // the file cannot be used at present
	file    os.FileInfo
	looked  time.Time
	digests map[string][]byte // of credentials that were right, by user
}

// NewBasic reads the file. Each line is user:hash with a hash of bcrypt; other hashes are an error.
// The file is read again when it changes, at most once a second. While it cannot be read, or has an
// error, no person comes in, and the log has the reason.
func NewBasic(path string, log *slog.Logger) (*Basic, error) {
	known, info, err := readPasswords(path)
	if err != nil {
		return nil, err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it cannot fail
	return &Basic{
		path: path, log: log, now: time.Now, key: key,
		slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		known: known, file: info, looked: time.Now(), digests: make(map[string][]byte),
	}, nil
}

// fileEvery is the interval at which the file is looked at.
const fileEvery = time.Second

// passwords returns the users of the file as it is now.
func (b *Basic) passwords() (*passwords, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if now.Sub(b.looked) < fileEvery && now.After(b.looked) {
		return b.known, b.failed
	}
	b.looked = now
	info, err := os.Stat(b.path)
	if err == nil && b.failed == nil && sameFile(info, b.file) {
		return b.known, nil
	}
	known, info, err := readPasswords(b.path)
	if err != nil {
		if b.failed == nil || b.failed.Error() != err.Error() {
			b.log.Error("passwords cannot be read: no person can sign in", "error", err)
		}
		b.known, b.failed, b.file = nil, err, nil
		return nil, err
	}
	b.known, b.failed, b.file = known, nil, info
	b.digests = make(map[string][]byte)
	b.log.Info("passwords read", "file", b.path, "users", len(known.hashes))
	return known, nil
}

func sameFile(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// Person implements [Method]. Right credentials are remembered as a digest, since bcrypt is slow
// and a browser sends them with each request.
func (b *Basic) Person(r *http.Request) (p Person, err error) {
	name, password, ok := r.BasicAuth()
	if !ok {
		return p, ErrUnknown
	}
	known, err := b.passwords()
	if err != nil {
		return p, err
	}
	hash := known.hashes[name]
	digest := b.digest(name, password, hash)
	if hash != nil && b.remembers(name, digest) {
		return Person{Name: name}, nil
	}
	slot := b.tries.slot(b.key, name)
	if !b.tries.take(slot, b.now()) {
		return p, ErrLimited
	}
	right, err := b.compare(r.Context(), known, hash, password)
	if err != nil {
		return p, err
	}
	if !right {
		return p, ErrUnknown
	}
	b.tries.giveBack(slot)
	b.remember(known, name, digest)
	return Person{Name: name}, nil
}

// slotWait bounds the wait for other comparisons.
const slotWait = 5 * time.Second

// compare calls bcrypt, for an unknown user too.
func (b *Basic) compare(
	ctx context.Context, known *passwords, hash []byte, password string,
) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, slotWait)
	defer cancel()
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	case <-ctx.Done():
		return false, ErrLimited
	}
	against := hash
	if against == nil {
		against = known.decoy
	}
	err := bcrypt.CompareHashAndPassword(against, []byte(password))
	if err != nil && !errors.Is(err, bcrypt.ErrMismatchedHashAndPassword) {
		return false, err
	}
	return err == nil && hash != nil, nil
}

// digest is that of credentials and of the hash that they were compared with.
func (b *Basic) digest(name, password string, hash []byte) []byte {
	m := hmac.New(sha256.New, b.key)
	for _, part := range [][]byte{[]byte(name), []byte(password), hash} {
		m.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		m.Write(part)
	}
	return m.Sum(nil)
}

func (b *Basic) remembers(name string, digest []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return hmac.Equal(b.digests[name], digest)
}

func (b *Basic) remember(known *passwords, name string, digest []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == known { // the file has not changed meanwhile: at most one digest for each user
		b.digests[name] = digest
	}
}

// Deny implements [Method]. The browser asks for a password.
func (b *Basic) Deny(w http.ResponseWriter, _ *http.Request, err error) {
	if errors.Is(err, ErrUnknown) {
		w.Header().Set("WWW-Authenticate", `Basic realm="idem ops", charset="UTF-8"`)
	}
	refuse(w, err)
}
