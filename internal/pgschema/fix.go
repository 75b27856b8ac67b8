package pgschema

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// shellSafe is text that a shell takes as one word.
var shellSafe = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// MigrateCommand is the command that makes the tables where the sessions of cfg look for them, without the password. more are
// further flags. Without cfg it names no database.
func MigrateCommand(cfg *pgx.ConnConfig, schema string, more ...string) string {
	words := append([]string{"idem", "migrate", "up"}, more...)
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
		words = append(words, "--ledger", quote(u.String()))
		if path, _, _ := strings.Cut(cfg.RuntimeParams["search_path"], ","); schema == "" && identifier.MatchString(path) {
			schema = path
		}
	}
	if schema != "" {
		words = append(words, "--schema", schema)
	}
	return strings.Join(words, " ")
}

func quote(word string) string {
	if shellSafe.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
