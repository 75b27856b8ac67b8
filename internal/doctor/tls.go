package doctor

import (
	"crypto/tls"
	"net/url"
	"slices"
	"strings"
)

// endpoint is one address that a worker may connect to.
type endpoint struct {
	host string
	tls  *tls.Config // nil: plain text
}

// transport is the protection of a worker's connections to a store.
type transport struct {
	remote   bool // a server is on another host: connections to this host need no protection
	plain    bool // no connection is encrypted
	fallback bool // a connection may be in plain text
	unproven bool // the certificate of a server is not verified
	unseen   bool // a program has the settings
}

// transportOf judges all addresses: a worker may connect to each of them.
func transportOf(all []endpoint) (t transport) {
	encrypted := false
	for _, e := range all {
		switch {
		case isLocal(e.host):
			continue
		case e.tls == nil:
			t.fallback = true
		default:
			encrypted = true
			t.unproven = t.unproven || trustsAll(e.tls)
		}
		t.remote = true
	}
	t.plain = t.fallback && !encrypted
	return t
}

// trustsAll reports whether a client accepts any certificate. A function of the program's own may
// verify the certificate.
func trustsAll(c *tls.Config) bool {
	return c.InsecureSkipVerify && c.VerifyPeerCertificate == nil && c.VerifyConnection == nil
}

// judge reports the protection. encrypt and verify are the remedies.
func (t transport) judge(r *Findings, on, encrypt, verify string, first ...choice) {
	const id = "settings.store.tls"
	if !t.remote {
		r.say(OK, id, on, "the store is on this host", "")
		return
	}
	r.choose(id, on, "encrypted, with a verified server", append(first,
		choice{t.plain, Warn, "events and results are sent unencrypted", encrypt},
		choice{t.fallback, Warn,
			"an attacker on the network can make the connection fall back to plain text", encrypt},
		choice{t.unproven, Warn,
			"encrypted, but the certificate of the server is not verified", verify},
		choice{t.unseen, Unknown, "the program of the workers has the TLS settings that the URL " +
			"names: the doctor cannot see whether the server is verified", verify})...)
}

// mysqlTransport returns the protection by the parameters of a URL, as go-sql-driver reads them.
func mysqlTransport(host string, q url.Values) transport {
	t := transport{remote: !isLocal(host)}
	mode := last(q, "tls")
	switch lower := strings.ToLower(mode); {
	case mode == "", slices.Contains([]string{"0", "false", "FALSE", "False"}, mode):
		t.plain = true
	case isTrue(mode):
	case lower == "preferred":
		t.fallback = true
	case lower == "skip-verify":
		t.unproven = true
	default: // the name of a tls.Config that the program registers
		t.unseen = true
	}
	t.fallback = t.fallback || isTrue(last(q, "allowFallbackToPlaintext"))
	return t
}

// isTrue reports whether go-sql-driver takes a value for true.
func isTrue(value string) bool {
	return slices.Contains([]string{"1", "true", "TRUE", "True"}, value)
}

// last returns the last value of a parameter: that one counts for the drivers.
func last(q url.Values, name string) string {
	if all := q[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}
