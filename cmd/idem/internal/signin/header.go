package signin

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
)

// Header takes the person from a header that a reverse proxy sets. Other senders are refused.
type Header struct {
	user, groups string
	proxies      []netip.Prefix
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*$`)

// NewHeader returns a method that trusts the header user from the addresses of proxies, such as
// "10.0.0.7" or "10.0.0.0/24". The header groups may be empty: persons have no groups then. Else it
// has the groups of the person, separated by commas.
func NewHeader(user, groups string, proxies []string) (*Header, error) {
	h := &Header{user: user, groups: groups}
	for _, name := range []string{user, groups} {
		if (name != "" || name == user) && !headerName.MatchString(name) {
			return nil, fmt.Errorf("%q is no name of a header: use A-Z, a-z, 0-9 and -", name)
		}
	}
	if len(proxies) == 0 {
		return nil, errors.New("no address of a trusted proxy")
	}
	for _, text := range proxies {
		p, err := parseProxies(text)
		if err != nil {
			return nil, err
		}
		h.proxies = append(h.proxies, p)
	}
	return h, nil
}

func parseProxies(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if a, err2 := netip.ParseAddr(text); err2 == nil && a.Zone() == "" {
		a = a.Unmap()
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	switch {
	case err != nil:
		return p, fmt.Errorf("%q is no address and no range such as 10.0.0.0/24", text)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%q: write the range in IPv4", text)
	case p.Bits() == 0:
		return p, fmt.Errorf("%q has all addresses: every sender could choose a name", text)
	}
	return p, nil
}

// Person implements [Method].
func (h *Header) Person(r *http.Request) (p Person, err error) {
	if !h.trusts(r.RemoteAddr) {
		return p, fmt.Errorf("%w: the request comes from %s, which is no trusted proxy",
			ErrForbidden, r.RemoteAddr)
	}
	values := r.Header.Values(h.user)
	switch {
	case len(values) == 0:
		return p, fmt.Errorf("%w: the proxy has set no header %s", ErrUnknown, h.user)
	case len(values) > 1: // one may come from the browser
		return p, fmt.Errorf("%w: the request has the header %s %d times",
			ErrForbidden, h.user, len(values))
	}
	p.Name = strings.TrimSpace(values[0])
	if !isName(p.Name) {
		return Person{}, fmt.Errorf("%w: the header %s has no name", ErrUnknown, h.user)
	}
	if h.groups != "" {
		p.Groups, err = groupsOf(r.Header.Values(h.groups))
	}
	return p, err
}

// maxGroups bounds the groups of a person.
const maxGroups = 1000

func groupsOf(values []string) (groups []string, err error) {
	if len(values) > 1 {
		return nil, fmt.Errorf("%w: the header of groups is there %d times",
			ErrForbidden, len(values))
	}
	for _, value := range values {
		for name := range strings.SplitSeq(value, ",") {
			if name = strings.TrimSpace(name); isName(name) {
				groups = append(groups, name)
			}
			if len(groups) > maxGroups {
				return nil, fmt.Errorf("%w: the person has more than %d groups",
					ErrForbidden, maxGroups)
			}
		}
	}
	return groups, nil
}

func (h *Header) trusts(address string) bool {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return false
	}
	from := at.Addr().Unmap().WithZone("")
	for _, p := range h.proxies {
		if p.Contains(from) {
			return true
		}
	}
	return false
}

// Deny implements [Method].
func (h *Header) Deny(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, err) }
