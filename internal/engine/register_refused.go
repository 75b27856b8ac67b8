package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
)

// registerRefusal is the refusal of a store to register a scope, with the command by which an
// operator accepts the change once.
type registerRefusal struct {
	error
	command string
}

// Command returns the command of the operator.
func (r *registerRefusal) Command() string { return r.command }

// Unwrap returns the error of the store.
func (r *registerRefusal) Unwrap() error { return r.error }

// withCommand adds the command to the refusal of a registration. Other errors stay as they are.
func withCommand(err error, r *dedup.Registration) error {
	switch {
	case errors.Is(err, dedup.ErrIdentityChanged):
		return &registerRefusal{err, acceptCommand(err.Error(), r)}
	case errors.Is(err, dedup.ErrOtherScope):
		words := []string{
			"idem scope create --scope", quoted(r.Scope), "--group", quoted(r.Group),
		}
		for _, topic := range r.Topics {
			words = append(words, "--topic", quoted(topic))
		}
		return &registerRefusal{err, strings.Join(words, " ")}
	}
	return err
}

// acceptCommand names the types that the store names. A store that names none may have found any.
func acceptCommand(text string, r *dedup.Registration) string {
	all := slices.Sorted(maps.Keys(r.Descriptors))
	changed := slices.DeleteFunc(slices.Clone(all), func(typ string) bool {
		return !strings.Contains(text, fmt.Sprintf("type %q", typ))
	})
	if len(changed) == 0 {
		changed = all
	}
	words := []string{"idem scope accept --new-identity --scope", quoted(r.Scope)}
	for _, typ := range changed {
		words = append(words, "--type", quoted(typ), "--descriptor", quoted(r.Descriptors[typ]))
	}
	return strings.Join(words, " ")
}

// quoted quotes a word for a shell.
func quoted(word string) string {
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
