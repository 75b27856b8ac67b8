package identity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// FirstOf returns an extractor that takes the first identity that one of all finds.
func FirstOf(all ...Extractor) Extractor {
	forms := formsOf(all)
	if !differ(forms) {
		first := LegacyFirstOf(all...)
		first.Form = commonForm(forms)
		return first
	}
	find := func(ctx context.Context, m *idemtype.Message) (string, error) {
		i, v, err := firstFound(ctx, m, all)
		if err == nil {
			v = Tagged(v, forms[i])
		}
		return v, err
	}
	return Extractor{
		Find: find, Descriptor: "first/2(" + descriptors(all) + ")", Form: TaggedForm,
		Decodes: decodes(all),
	}
}

// LegacyFirstOf is FirstOf without a difference between the forms of identities.
func LegacyFirstOf(all ...Extractor) Extractor {
	find := func(ctx context.Context, m *idemtype.Message) (string, error) {
		_, v, err := firstFound(ctx, m, all)
		return v, err
	}
	return Extractor{Find: find, Descriptor: "first(" + descriptors(all) + ")", Decodes: decodes(all)}
}

// firstFound returns the first identity, and the index of its extractor.
func firstFound(
	ctx context.Context, m *idemtype.Message, all []Extractor,
) (i int, v string, err error) {
	err = fmt.Errorf("identity %w", idemtype.ErrNotFound)
	isJSON := true
	for i := range all {
		if v, err = all[i].Find(ctx, m); err == nil || !errors.Is(err, idemtype.ErrNotFound) {
			return i, v, err
		}
		isJSON = isJSON && !errors.Is(err, ErrNotJSON)
	}
	if !isJSON && !errors.Is(err, ErrNotJSON) {
		err = fmt.Errorf("%w, and before: %w", err, ErrNotJSON)
	}
	return 0, "", err
}

// Joined returns an extractor that joins the identities of all parts.
func Joined(parts ...Extractor) Extractor {
	forms := formsOf(parts)
	find := func(ctx context.Context, m *idemtype.Message) (string, error) {
		found, err := findAll(ctx, m, parts, forms)
		return dedup.Join(found...), err
	}
	descriptor := "joined" + versionOf(forms) + "(" + descriptors(parts) + ")"
	return Extractor{Find: find, Descriptor: descriptor, Form: JoinedForm, Decodes: decodes(parts)}
}

// Hashed returns an extractor that hashes the identities of all parts.
func Hashed(parts ...Extractor) Extractor {
	forms := formsOf(parts)
	find := func(ctx context.Context, m *idemtype.Message) (string, error) {
		found, err := findAll(ctx, m, parts, forms)
		if err != nil {
			return "", err
		}
		return dedup.Hash(found...), nil
	}
	descriptor := "hashed" + versionOf(forms) + "(" + descriptors(parts) + ")"
	return Extractor{Find: find, Descriptor: descriptor, Form: HashedForm, Decodes: decodes(parts)}
}

// findAll returns the parts of a composite identity. The texts of parts of different forms differ.
func findAll(
	ctx context.Context, m *idemtype.Message, parts []Extractor, forms []Form,
) ([]string, error) {
	found := make([]string, len(parts))
	for i := range parts {
		v, err := parts[i].Find(ctx, m)
		if err != nil {
			return nil, err
		}
		found[i] = Tagged(v, forms[i])
		// StandardID shortens a joined ID in the same way.
		if joined, ok := strings.CutPrefix(found[i], wordJoined); ok && len(found[i]) > dedup.MaxPart {
			found[i] = wordJoined + shortened(joined)
		}
	}
	return found, nil
}

func decodes(all []Extractor) bool {
	return slices.ContainsFunc(all, func(e Extractor) bool { return e.Decodes })
}

func descriptors(all []Extractor) string {
	words := make([]string, len(all))
	for i := range all {
		words[i] = all[i].Descriptor
	}
	return strings.Join(words, ", ")
}
