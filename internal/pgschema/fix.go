package pgschema

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// shellSafe is text that a shell takes as one word.
var shellSafe = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// MigrateCommand is the command that makes the tables where the sessions of cfg look for them. more are further flags. Without cfg it
// names no database. If there is a password, the command has the URL in the environment, with the word PASSWORD in its place: on
// the command line it would be refused.
func MigrateCommand(cfg *pgx.ConnConfig, schema string, more ...string) string {
	words, variable := append([]string{"idem", "migrate", "up"}, more...), ""
	if cfg != nil {
		u := url.URL{Scheme: "postgres", User: url.User(cfg.User), Path: "/" + cfg.Database}
		if host := cfg.Host; strings.HasPrefix(host, "/") { // a socket
			u.RawQuery = url.Values{"host": {host}, "port": {strconv.Itoa(int(cfg.Port))}}.Encode()
		} else {
			u.Host = host + ":" + strconv.Itoa(int(cfg.Port))
			if strings.Contains(host, ":") {
				u.Host = "[" + host + "]:" + strconv.Itoa(int(cfg.Port))
			}
		}
		if cfg.Password != "" {
			u.User = url.UserPassword(cfg.User, "PASSWORD")
			variable = "IDEM_STORE"
			if slices.Contains(more, "--outbox") {
				variable = "IDEM_OUTBOX"
			}
			variable += "=" + quote(u.String()) + " "
		} else {
			words = append(words, "--store", quote(u.String()))
		}
		if path, _, _ := strings.Cut(cfg.RuntimeParams["search_path"], ","); schema == "" && identifier.MatchString(path) {
			schema = path
		}
	}
	if schema != "" {
		words = append(words, "--schema", schema)
	}
	return variable + strings.Join(words, " ")
}

func quote(word string) string {
	if shellSafe.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
