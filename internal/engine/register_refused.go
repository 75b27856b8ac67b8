package engine

import (
	"errors"
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
		return &registerRefusal{err, acceptCommand(err, r)}
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

// acceptCommand names the types in the error of the store, or all types if the error names no type.
func acceptCommand(err error, r *dedup.Registration) string {
	types := slices.Sorted(maps.Keys(r.Descriptors))
	if changed, ok := errors.AsType[*dedup.IdentityChangedError](err); ok {
		types = changed.Types
	}
	words := []string{"idem scope accept --new-identity --scope", quoted(r.Scope)}
	for _, typ := range types {
		words = append(words, "--type", quoted(typ), "--descriptor", quoted(r.Descriptors[typ]))
	}
	return strings.Join(words, " ")
}

// quoted quotes a word for a shell.
func quoted(word string) string {
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
