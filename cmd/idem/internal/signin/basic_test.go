package signin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

func hashOf(t *testing.T, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	require.NoError(t, err)
	return string(hash)
}

// basicOf is the method of a file, with a clock that the test moves.
type basicOf struct {
	*Basic
	t    *testing.T
	mu   sync.Mutex
	time time.Time
}

func newBasic(t *testing.T, lines ...string) *basicOf {
	t.Helper()
	path := filepath.Join(t.TempDir(), "htpasswd")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	b, err := NewBasic(path, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	c := &basicOf{Basic: b, t: t, time: time.Now()}
	b.now = func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.time
	}
	return c
}

func (b *basicOf) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.time = b.time.Add(d)
}

func (b *basicOf) write(lines ...string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(b.path, []byte(strings.Join(lines, "\n")), 0o600))
	b.pass(fileEvery)
}

func (b *basicOf) try(name, password string) error {
	b.t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.SetBasicAuth(name, password)
	p, err := b.Person(r)
	if err == nil {
		require.Equal(b.t, Person{Name: name}, p)
	} else {
		require.Empty(b.t, p)
	}
	return err
}

func TestParsePasswords(t *testing.T) {
	good := hashOf(t, "secret")
	for says, text := range map[string]string{
		"":                                   "# operators\n\nada:" + good + "\r\nbob:$2y" + good[3:] + "\n",
		"no user":                            "# none\n",
		"line 1: a line is user:hash":        "ada\n",
		"line 2: a line is user:hash":        "ada:" + good + "\n:" + good,
		"user \"ada\" is there twice":        "ada:" + good + "\nada:" + good,
		"of user \"ada\" is not of bcrypt":   "ada:$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/",
		"of user \"bob\" is not of bcrypt":   "bob:{SHA}2PRZAyDhNDqRW2OUFwZQqPNdaSY=",
		"of user \"eve\" is not of bcrypt":   "eve:plaintext",
		"of user \"c\" is damaged":           "c:$2y$10$short",
		"has cost 15, and the highest is 14": "d:$2y$15" + good[6:],
	} {
		p, err := parsePasswords([]byte(text))
		if says == "" {
			require.NoError(t, err)
			require.Len(t, p.hashes, 2)
			continue
		}
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "$", "the error shows a hash")
		require.NotContains(t, err.Error(), "plaintext")
	}
}

func TestBasic(t *testing.T) {
	b := newBasic(t, "ada:"+hashOf(t, "lovelace"), "bob:"+hashOf(t, ""))
	require.NoError(t, b.try("ada", "lovelace"))
	require.NoError(t, b.try("ada", "lovelace"), "from memory")
	require.NoError(t, b.try("bob", ""), "as the file says")
	for _, c := range [][2]string{{"ada", "Lovelace"}, {"ada", ""}, {"eve", ""}, {"", ""}, {"eve", "lovelace"}, {"bob", "lovelace"}, {"adalovelace", ""}} {
		require.ErrorIs(t, b.try(c[0], c[1]), ErrUnknown, "%v", c)
	}
	_, err := b.Person(httptest.NewRequest(http.MethodGet, "/", nil))
	require.ErrorIs(t, err, ErrUnknown)
	require.Len(t, b.digests, 2)
}

// The file is read again when it changes. While it has an error, no person comes in.
func TestBasic_FileChanges(t *testing.T) {
	b := newBasic(t, "ada:"+hashOf(t, "one"))
	require.NoError(t, b.try("ada", "one"))
	b.write("ada:"+hashOf(t, "two"), "bob:"+hashOf(t, "three"))
	require.ErrorIs(t, b.try("ada", "one"), ErrUnknown, "a remembered password")
	require.NoError(t, b.try("ada", "two"))
	require.NoError(t, b.try("bob", "three"))
	b.write("bob:" + hashOf(t, "three"))
	require.ErrorIs(t, b.try("ada", "two"), ErrUnknown)

	b.write("bob:plain")
	for range 2 {
		err := b.try("bob", "three")
		require.ErrorContains(t, err, "not of bcrypt")
		require.NotErrorIs(t, err, ErrUnknown, "the browser need not ask again")
	}
	require.NoError(t, os.Remove(b.path))
	b.pass(fileEvery)
	require.ErrorIs(t, b.try("bob", "three"), os.ErrNotExist)
	b.write("bob:" + hashOf(t, "three"))
	require.NoError(t, b.try("bob", "three"))
	_, err := NewBasic(filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Wrong passwords are bounded for each name, known or not, and come back with time. The attempts of
// others do not shut out a signed-in person.
func TestBasic_AttemptsAreBounded(t *testing.T) {
	b := newBasic(t, "ada:"+hashOf(t, "one"), "bob:"+hashOf(t, "two"))
	require.NoError(t, b.try("ada", "one"))
	for _, name := range []string{"ada", "bob", "unknown"} {
		for range attemptsAtOnce {
			require.ErrorIs(t, b.try(name, "guess"), ErrUnknown, name)
		}
		require.ErrorIs(t, b.try(name, "guess"), ErrLimited, name)
	}
	require.NoError(t, b.try("ada", "one"))
	require.ErrorIs(t, b.try("bob", "two"), ErrLimited)
	b.pass(attemptEvery)
	require.NoError(t, b.try("bob", "two"))
	for range 3 * attemptsAtOnce {
		require.NoError(t, b.try("bob", "two"), "right passwords cost nothing")
	}
}

// An unknown name costs a comparison too, of the highest cost in the file.
func TestBasic_UnknownNameIsCompared(t *testing.T) {
	b := newBasic(t, "ada:"+hashOf(t, "one"))
	known, err := b.passwords()
	require.NoError(t, err)
	cost, err := bcrypt.Cost(known.decoy)
	require.NoError(t, err)
	require.Equal(t, bcrypt.MinCost, cost)
	known.decoy = []byte("no hash")
	require.ErrorIs(t, b.try("eve", "x"), bcrypt.ErrHashTooShort, "the decoy was compared")
}

// Comparisons at once are bounded, and a request that is gone does not wait for a slot.
func TestBasic_ComparisonsAreBounded(t *testing.T) {
	b := newBasic(t, "ada:"+hashOf(t, "one"))
	for range cap(b.slots) {
		b.slots <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	r.SetBasicAuth("ada", "one")
	_, err := b.Person(r)
	require.ErrorIs(t, err, ErrLimited)
}

func TestDeny(t *testing.T) {
	b := newBasic(t, "ada:"+hashOf(t, "one"))
	h, err := NewHeader("X-User", "", []string{"10.0.0.1"})
	require.NoError(t, err)
	for err, status := range map[error]int{
		ErrUnknown: 401, ErrLimited: 429, ErrForbidden: 403, errors.New("secret reason"): 503,
	} {
		for _, m := range []Method{b, h} {
			w := httptest.NewRecorder()
			m.Deny(w, httptest.NewRequest(http.MethodGet, "/", nil), err)
			require.Equal(t, status, w.Code)
			require.NotContains(t, w.Body.String(), "secret")
			asks := status == 401 && m == Method(b)
			require.Equal(t, asks, w.Header().Get("WWW-Authenticate") != "")
		}
	}
}

func TestGuard(t *testing.T) {
	b := newBasic(t, "ada:"+hashOf(t, "one"), "bob:"+hashOf(t, "two"))
	g := &Guard{Method: b, Rules: Rules{Viewers: []string{"ada"}}}
	ask := func(name, password string) (who string, p Person, err error) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth(name, password)
		g.Find(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			who, err = g.Auth(r)
			p = PersonOf(r, "somebody")
		})).ServeHTTP(httptest.NewRecorder(), r)
		return who, p, err
	}
	who, p, err := ask("ada", "one")
	require.NoError(t, err)
	require.Equal(t, "ada", who)
	require.Equal(t, Person{Name: "ada"}, p)
	_, p, err = ask("bob", "two")
	require.ErrorIs(t, err, ErrForbidden, "no viewer")
	require.Equal(t, "somebody", p.Name)
	_, _, err = ask("ada", "two")
	require.ErrorIs(t, err, ErrUnknown)
	_, err = g.Auth(httptest.NewRequest(http.MethodGet, "/", nil))
	require.ErrorIs(t, err, ErrUnknown, "a request that no guard has seen")
}
