package kafkaauth

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// watched is a value that is parsed from files, and parsed again when their contents change.
type watched[T any] struct {
	kind  string // for texts
	paths []string
	parse func(files [][]byte) (T, error)
	log   *slog.Logger

	mu    sync.Mutex
	value T                 // from the last good contents
	seen  [sha256.Size]byte // the last contents, good or bad
}

// first reads the files for the first time.
func (w *watched[T]) first() (T, error) {
	files, sum, err := w.read()
	if err == nil {
		w.value, err = w.parse(files)
	}
	if err != nil {
		var none T
		return none, fmt.Errorf("%s %s: %w", w.kind, strings.Join(w.paths, ", "), err)
	}
	w.seen = sum
	return w.value, nil
}

// now returns the value of the last good contents.
func (w *watched[T]) now() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	files, sum, err := w.read()
	if sum == w.seen {
		return w.value
	}
	w.seen = sum
	var fresh T
	if err == nil {
		fresh, err = w.parse(files)
	}
	if err != nil {
		w.log.Warn("bad "+w.kind+", the old one stays in use", "files", w.paths, "error", err)
		return w.value
	}
	w.value = fresh
	w.log.Info("new "+w.kind+" is in use", "files", w.paths)
	return fresh
}

// read returns the contents of the files, and a checksum of the contents or of the error.
func (w *watched[T]) read() (files [][]byte, sum [sha256.Size]byte, err error) {
	sums := sha256.New()
	for _, path := range w.paths {
		data, err := readFile(path)
		if err != nil {
			return nil, sha256.Sum256([]byte(err.Error())), err
		}
		one := sha256.Sum256(data)
		sums.Write(one[:])
		files = append(files, data)
	}
	return files, [sha256.Size]byte(sums.Sum(nil)), nil
}
