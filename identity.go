package idem

import (
	"errors"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
)

// This file keeps the identities of two forms apart: an ID that is there as it is, one that [Joined] made of parts, and one that
// [Hashed] did. A recipe that finds only one form needs no more: each form is injective by itself. A recipe that may find several
// puts a word in front of what was joined or hashed, and of a plain ID that begins with one of these words. So the texts of
// the forms never meet, and the common ID stays as its producer wrote it.

// form is what the text of an identity is made of.
type form uint8

const (
	formPlain  form = iota // as it was found
	formJoined             // parts, by dedup.Join
	formHashed             // a hash of parts
	formTagged             // any of them, told apart by its first word
)

// The first words of identities where several forms may meet.
const (
	wordPlain  = "plain:"
	wordJoined = "joined:"
	wordHashed = "hashed:"
)

// tagged is the text of an identity where other forms may meet it.
func tagged(id string, f form) string {
	if id == "" { // none
		return ""
	}
	word := ""
	switch f {
	case formTagged:
	case formJoined:
		word = wordJoined
	case formHashed:
		word = wordHashed
	case formPlain:
		if strings.HasPrefix(id, wordPlain) || strings.HasPrefix(id, wordJoined) || strings.HasPrefix(id, wordHashed) {
			word = wordPlain
		}
	}
	if word == "" || len(word)+len(id) <= dedup.MaxPart || (dedup.Key{ID: id}).Validate() != nil {
		return word + id
	}
	return word + shortened(id)
}

// shortened is in the place of a text that is too long only with its word in front. No other text looks like it: dedup.Join
// escapes braces, and what follows "plain:" begins with another of these words.
func shortened(id string) string { return "{" + dedup.Hash(id) + "}" }

// description is what a function of this package says of itself, see recipeWord.
type description struct {
	words []string
	form  form
}

// formOf says what f finds. A function of somebody else finds plain IDs: it has no parts that anybody knows of.
func formOf(f IDFunc) form { return describe(f).form }

// describe calls f with a message that wants to be told, if f is of this package: there is no event for a function of somebody else.
func describe(f IDFunc) (a description) {
	if f == nil {
		return description{}
	}
	name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
	own, ok := strings.CutPrefix(name, ownFunctions)
	if !ok || !slices.Contains(makers, strings.TrimSuffix(own, ".func1")) {
		return description{}
	}
	if _, err := f(&Message{trace: &a}); !errors.Is(err, errDescribed) || len(a.words) != 1 {
		return description{}
	}
	return a
}

func formsOf(fns []IDFunc) []form {
	forms := make([]form, len(fns))
	for i, f := range fns {
		forms[i] = formOf(f)
	}
	return forms
}

func differ(forms []form) bool {
	return len(slices.Compact(slices.Clone(forms))) > 1
}

// versionOf is what the recipe of a composite identity says of its parts: those that are joined or hashed have had a word in front since the
// second version.
func versionOf(parts []form) string {
	if slices.Contains(parts, formJoined) || slices.Contains(parts, formHashed) {
		return "/2"
	}
	return ""
}

// forms of several functions: the one that all have, or formTagged if they are not the same.
func commonForm(forms []form) form {
	for _, f := range forms {
		if f != forms[0] {
			return formTagged
		}
	}
	if len(forms) == 0 {
		return formPlain
	}
	return forms[0]
}
