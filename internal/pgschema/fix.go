package pgschema

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// shellSafe matches text that a shell reads as one word.
var shellSafe = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// MigrateCommand returns the command that creates the tables in the schema that the sessions of cfg
// use. more are further flags. Without cfg the command names no database.
//
// If cfg has a password, the command passes the URL in the environment, because it refuses a
// password in an argument. The URL has xxxxx in place of the password, as logs do.
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
			u.User = url.UserPassword(cfg.User, cfg.Password)
			variable = "IDEM_STORE"
			if slices.Contains(more, "--outbox") {
				variable = "IDEM_OUTBOX"
			}
			variable += "=" + quote(u.Redacted()) + " "
		} else {
			words = append(words, "--store", quote(u.String()))
		}
		path, _, _ := strings.Cut(cfg.RuntimeParams["search_path"], ",")
		if schema == "" && identifier.MatchString(path) {
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
