package identity

import (
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
)

// This file keeps identities of different forms apart: a plain ID, an ID that [Joined] made of
// parts, and an ID that [Hashed] made. An extractor that finds only one form needs no more, because
// each form is injective. An extractor that can find several forms puts a word in front of joined
// and hashed IDs. A plain ID that begins with one of these words gets a word in front too. So the
// texts of two forms never meet, and a common ID stays as the producer wrote it.

// Form is the way in which the text of an identity was made.
type Form uint8

// The forms.
const (
	PlainForm  Form = iota // as found
	JoinedForm             // parts, by dedup.Join
	HashedForm             // a hash of parts
	TaggedForm             // any of them, with a first word where needed
)

// The first words of identities where several forms may meet.
const (
	wordPlain  = "plain:"
	wordJoined = "joined:"
	wordHashed = "hashed:"
)

// Tagged returns the text of an identity where identities of other forms are possible.
func Tagged(id string, f Form) string {
	if id == "" { // none
		return ""
	}
	word := ""
	switch f {
	case TaggedForm:
	case JoinedForm:
		word = wordJoined
	case HashedForm:
		word = wordHashed
	case PlainForm:
		if strings.HasPrefix(id, wordPlain) || strings.HasPrefix(id, wordJoined) || strings.HasPrefix(id, wordHashed) {
			word = wordPlain
		}
	}
	if word == "" || len(word)+len(id) <= dedup.MaxPart || (dedup.Key{ID: id}).Validate() != nil {
		return word + id
	}
	return word + shortened(id)
}

// shortened replaces a text that is too long only because of the word in front. No other text looks
// like that: dedup.Join escapes braces, and a text behind "plain:" begins with one of the words.
func shortened(id string) string { return "{" + dedup.Hash(id) + "}" }

func formsOf(all []Extractor) []Form {
	forms := make([]Form, len(all))
	for i := range all {
		forms[i] = all[i].Form
	}
	return forms
}

func differ(forms []Form) bool {
	return len(slices.Compact(slices.Clone(forms))) > 1
}

// versionOf returns the version of a composite identity for its descriptor. Since version 2, joined
// and hashed parts have a word in front.
func versionOf(parts []Form) string {
	if slices.Contains(parts, JoinedForm) || slices.Contains(parts, HashedForm) {
		return "/2"
	}
	return ""
}

// commonForm returns the form of all, or TaggedForm if they differ.
func commonForm(forms []Form) Form {
	for _, f := range forms {
		if f != forms[0] {
			return TaggedForm
		}
	}
	if len(forms) == 0 {
		return PlainForm
	}
	return forms[0]
}
