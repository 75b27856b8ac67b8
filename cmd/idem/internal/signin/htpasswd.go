package signin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/crypto/bcrypt"
)

// The limits of a file of passwords. A hash of maxCost takes about a second, and each wrong
// password costs as much.
const (
	maxFile  = 1 << 20
	maxUsers = 10_000
	maxCost  = 14
)

// passwords are the users of a file in htpasswd form.
type passwords struct {
	hashes map[string][]byte
	// decoy is a hash of no password, of the highest cost in the file. It is compared for unknown
	// users, so that the time of the answer does not show which names are known.
	decoy []byte
}

// readPasswords reads a file. The file is opened once, so that it cannot change in between.
func readPasswords(path string) (*passwords, os.FileInfo, error) {
	f, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, nil, err
	}
	if len(text) > maxFile {
		return nil, nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	p, err := parsePasswords(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, info, nil
}

func parsePasswords(text []byte) (*passwords, error) {
	p := &passwords{hashes: make(map[string][]byte)}
	cost, number := 0, 0
	for line := range bytes.Lines(text) {
		number++
		entry := strings.TrimSpace(string(line))
		if entry == "" || strings.HasPrefix(entry, "#") {
			continue
		}
		c, err := p.add(entry)
		if err != nil { // the error shows no hash
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		cost = max(cost, c)
	}
	if len(p.hashes) == 0 {
		return nil, errors.New("no user is in the file")
	}
	var err error
	p.decoy, err = bcrypt.GenerateFromPassword(nil, cost)
	return p, err
}

// add adds a line such as "ada:$2y$12$...", and returns the cost of its hash.
func (p *passwords) add(entry string) (cost int, err error) {
	name, hash, ok := strings.Cut(entry, ":")
	switch {
	case !ok || !isName(name):
		return 0, errors.New("a line is user:hash")
	case p.hashes[name] != nil:
		return 0, fmt.Errorf("user %q is there twice", name)
	case len(p.hashes) == maxUsers:
		return 0, fmt.Errorf("more than %d users", maxUsers)
	case !strings.HasPrefix(hash, "$2a$") && !strings.HasPrefix(hash, "$2b$") &&
		!strings.HasPrefix(hash, "$2y$"):
		return 0, fmt.Errorf("the hash of user %q is not of bcrypt: make the line with htpasswd -B",
			name)
	}
	if cost, err = bcrypt.Cost([]byte(hash)); err != nil {
		return 0, fmt.Errorf("the hash of user %q is damaged: %w", name, err)
	}
	if cost > maxCost {
		return 0, fmt.Errorf("the hash of user %q has cost %d, and the highest is %d",
			name, cost, maxCost)
	}
	p.hashes[name] = []byte(hash)
	return cost, nil
}
