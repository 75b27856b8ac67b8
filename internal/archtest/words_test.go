package archtest

import (
	"go/ast"
	"go/scanner"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// retired has the words that the product gave up, and the word that replaced each. docs/glossary.md
// defines the words that stand.
var retired = []struct {
	name    *regexp.Regexp // in exported identifiers
	text    *regexp.Regexp // in pages, comments and messages; nil: an ordinary word
	instead string
}{
	{regexp.MustCompile(`Ledger`), regexp.MustCompile(`(?i)ledger`), "store"},
	{regexp.MustCompile(`Letter`), regexp.MustCompile(`(?i)\bletters?\b`), "dead letter"},
	{regexp.MustCompile(`^(?:Keeper|NewKeeper|Kept)$`), regexp.MustCompile(`\bKeeper\b`), "LeaseRenewer, HeldClaims"},
	{regexp.MustCompile(`Fate`), regexp.MustCompile(`\bFate\b`), "ResultPolicy"},
	{regexp.MustCompile(`OwnTx`), regexp.MustCompile(`\bOwnTx\b`), "TxPerEvent"},
	{regexp.MustCompile(`^Otherwise$`), regexp.MustCompile("`Otherwise`"), "NotFound"},
	{regexp.MustCompile(`^(?:Parker|Lot|TakeUp|TakesUp|FindParked|ParkedOf)$`), regexp.MustCompile(`(?i)\bdeferred lots?\b|\btaken up\b|\bTakeUp\b|parked_keys`), "Deferrer, DeferredPartition, RunDeferred"},
	{regexp.MustCompile(`Patience`), regexp.MustCompile(`\bDefaultPatience\b`), "MaxElapsed"},
	{regexp.MustCompile(`^(?:IDFunc|Described)$`), regexp.MustCompile(`\bIDFunc\b|\bidem\.Described\b`), "Extractor, FromFunc"},
	{regexp.MustCompile(`^(?:RunObserver|BeginRun|EndRun)$`), regexp.MustCompile(`\b(?:RunObserver|BeginRun|EndRun)\b`), "ClaimGroup"},
	{regexp.MustCompile(`Recipe`), regexp.MustCompile(`(?i)\brecipes?\b|idem_recipes`), "descriptor"},
	{regexp.MustCompile(`^(?:SettledLater|Moved)$`), regexp.MustCompile(`\bSettledLater\b|\bMoved\b`), "SettledRescheduled, Rescheduled"},
}

// standing are words that contain a retired one and stand.
var standing = regexp.MustCompile(`(?i)dead[-_ ]?letter|double-entry ledger|letters, digits|letter by letter|letter-spacing|letters are those of the protocol`)

// bank is the example of a bank, which has a ledger in the sense of bookkeeping.
const bank = "examples/transfer/"

func TestRetiredWordsStayAway(t *testing.T) {
	names, passed := 0, map[string]bool{}
	for _, f := range files(t, ".go") {
		if strings.HasPrefix(f, bank) || strings.HasPrefix(f, "internal/archtest/") {
			continue
		}
		src := read(t, f)
		if !strings.HasSuffix(f, "_test.go") {
			for _, name := range exported(parsed(t, f)) {
				names++
				if passed[name] {
					continue
				}
				passed[name] = true
				for _, r := range retired {
					assert.NotRegexp(t, r.name, standing.ReplaceAllString(name, ""), "%s: the word is %s", f, r.instead)
				}
			}
		}
		if mayBeRetired(string(src)) {
			for _, text := range texts(src) {
				requireWords(t, f, text)
			}
		}
	}
	require.Greater(t, names, 1000, "exported names")
	for _, ending := range []string{".md", ".html", ".sql", ".yml"} {
		for _, f := range files(t, ending) {
			if f != "CHANGELOG.md" && !strings.HasPrefix(f, bank) {
				requireWords(t, f, string(read(t, f)))
			}
		}
	}
}

// stems are in lower case, and one of them is in every match of a pattern of retired. A search for
// them is far faster than the patterns, and most texts have no stem.
var stems = []string{
	"ledger", "letter", "keeper", "fate", "owntx", "`otherwise`", "deferred lot", "taken up", "takeup",
	"parked_keys", "defaultpatience", "idfunc", "idem.described", "runobserver", "beginrun", "endrun",
	"recipe", "settledlater", "moved",
}

func mayBeRetired(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(stems, func(s string) bool { return strings.Contains(text, s) })
}

// A text with a retired word has one of the stems: for each pattern, a word that it matches.
func TestStemsAreThoseOfRetiredWords(t *testing.T) {
	found := map[string]bool{}
	for text, pattern := range map[string]string{
		"a Ledger": "store", "two letters": "dead letter", "a Keeper": "LeaseRenewer, HeldClaims",
		"its Fate": "ResultPolicy", "an OwnTx": "TxPerEvent", "see `Otherwise`": "NotFound",
		"DefaultPatience": "MaxElapsed", "an IDFunc": "Extractor, FromFunc",
		"idem.Described": "Extractor, FromFunc", "a RunObserver": "ClaimGroup",
		"BeginRun": "ClaimGroup", "EndRun": "ClaimGroup", "idem_recipes": "descriptor",
		"Recipes": "descriptor", "SettledLater": "SettledRescheduled, Rescheduled",
		"it is Moved":   "SettledRescheduled, Rescheduled",
		"Deferred lots": "Deferrer, DeferredPartition, RunDeferred",
		"taken up":      "Deferrer, DeferredPartition, RunDeferred",
		"takeUp":        "Deferrer, DeferredPartition, RunDeferred",
		"parked_keys":   "Deferrer, DeferredPartition, RunDeferred",
	} {
		for _, r := range retired {
			if r.instead == pattern && r.text.MatchString(text) {
				found[pattern] = true
				assert.True(t, mayBeRetired(text), text)
			}
		}
	}
	for _, r := range retired {
		assert.True(t, found[r.instead], "no text for %s", r.instead)
	}
}

func requireWords(t *testing.T, file, text string) {
	t.Helper()
	if !mayBeRetired(text) {
		return
	}
	text = standing.ReplaceAllString(text, "")
	for _, r := range retired {
		if at := r.text.FindStringIndex(text); at != nil {
			assert.Fail(t, "retired word", "%s: ...%s...: the word is %s", file, text[max(at[0]-40, 0):min(at[1]+40, len(text))], r.instead)
		}
	}
}

// exported returns the exported names of a file: types, their fields and methods, functions,
// constants, variables.
func exported(f *ast.File) (names []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		var ids []*ast.Ident
		switch n := n.(type) {
		case *ast.FuncDecl:
			ids = []*ast.Ident{n.Name}
		case *ast.TypeSpec:
			ids = []*ast.Ident{n.Name}
		case *ast.ValueSpec:
			ids = n.Names
		case *ast.Field:
			ids = n.Names
		}
		for _, id := range ids {
			if id.IsExported() {
				names = append(names, id.Name)
			}
		}
		return true
	})
	return names
}

// shown matches the strings that users read: messages, which have a space, names of JSON fields and
// headings in capitals.
var shown = regexp.MustCompile(` |\bjson:|^"[A-Z]+"$`)

// texts returns the comments of a file, and the strings in it that users read.
func texts(src []byte) (out []string) {
	var s scanner.Scanner
	fset := token.NewFileSet()
	s.Init(fset.AddFile("", fset.Base(), len(src)), src, nil, scanner.ScanComments)
	for {
		_, tok, lit := s.Scan()
		switch {
		case tok == token.EOF:
			return out
		case tok == token.COMMENT, tok == token.STRING && shown.MatchString(lit):
			out = append(out, lit)
		}
	}
}
