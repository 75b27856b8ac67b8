package signin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewHeader_Refuses(t *testing.T) {
	for says, c := range map[string]struct {
		user, groups string
		proxies      []string
	}{
		"no name of a header":   {"X User", "", []string{"10.0.0.1"}},
		`"" is no name`:         {"", "X-Groups", []string{"10.0.0.1"}},
		`"X:G" is no name`:      {"X-User", "X:G", []string{"10.0.0.1"}},
		"no address of a":       {"X-User", "", nil},
		"is no address and no":  {"X-User", "", []string{"proxy.example"}},
		"0.0.0.0/0":             {"X-User", "", []string{"0.0.0.0/0"}},
		"::/0":                  {"X-User", "", []string{"10.0.0.1", "::/0"}},
		"write the range in IP": {"X-User", "", []string{"::ffff:10.0.0.0/104"}},
	} {
		_, err := NewHeader(c.user, c.groups, c.proxies)
		require.ErrorContains(t, err, says)
	}
}

func TestHeader(t *testing.T) {
	h, err := NewHeader("X-User", "X-Groups", []string{"10.0.0.0/24", "192.168.1.5", "2001:db8::/64", "::1"})
	require.NoError(t, err)
	person := func(name string, groups ...string) Person { return Person{name, groups} }
	for name, c := range map[string]struct {
		from   string
		header http.Header
		want   Person
		err    error
	}{
		"a range":                  {"10.0.0.200:1", http.Header{"X-User": {" ada "}}, person("ada"), nil},
		"an address":               {"192.168.1.5:1", http.Header{"X-User": {"ada"}}, person("ada"), nil},
		"IPv4 in IPv6":             {"[::ffff:10.0.0.3]:1", http.Header{"X-User": {"ada"}}, person("ada"), nil},
		"IPv6":                     {"[2001:db8::7]:1", http.Header{"X-User": {"ada"}}, person("ada"), nil},
		"groups":                   {"[::1]:1", http.Header{"X-User": {"ada"}, "X-Groups": {"sre, ,payments,*"}}, person("ada", "sre", "payments"), nil},
		"beside the range":         {"10.0.1.1:1", http.Header{"X-User": {"ada"}}, Person{}, ErrForbidden},
		"beside the address":       {"192.168.1.6:1", http.Header{"X-User": {"ada"}}, Person{}, ErrForbidden},
		"from nowhere":             {"", http.Header{"X-User": {"ada"}}, Person{}, ErrForbidden},
		"a foreign one, no header": {"8.8.8.8:1", nil, Person{}, ErrForbidden},
		"no header":                {"10.0.0.1:1", nil, Person{}, ErrUnknown},
		"an empty header":          {"10.0.0.1:1", http.Header{"X-User": {" "}}, Person{}, ErrUnknown},
		"everybody":                {"10.0.0.1:1", http.Header{"X-User": {"*"}}, Person{}, ErrUnknown},
		"control characters":       {"10.0.0.1:1", http.Header{"X-User": {"a\x1bda"}}, Person{}, ErrUnknown},
		"a long name":              {"10.0.0.1:1", http.Header{"X-User": {strings.Repeat("a", maxName+1)}}, Person{}, ErrUnknown},
		"two headers":              {"10.0.0.1:1", http.Header{"X-User": {"eve", "ada"}}, Person{}, ErrForbidden},
		"two headers of groups":    {"10.0.0.1:1", http.Header{"X-User": {"eve"}, "X-Groups": {"a", "sre"}}, Person{}, ErrForbidden},
		"too many groups":          {"10.0.0.1:1", http.Header{"X-User": {"eve"}, "X-Groups": {strings.Repeat("a,", maxGroups+1)}}, Person{}, ErrForbidden},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr, r.Header = c.from, c.header
		got, err := h.Person(r)
		require.ErrorIs(t, err, c.err, name)
		if c.err == nil {
			require.NoError(t, err, name)
			require.Equal(t, c.want, got, name)
		}
	}
}

func TestRules(t *testing.T) {
	ada, bob := Person{"ada", []string{"sre"}}, Person{"bob", nil}
	for name, c := range map[string]struct {
		rules                  Rules
		p                      Person
		looks, operates, names bool
	}{
		"nothing":              {Rules{}, bob, true, false, false},
		"an operator":          {Rules{Operators: []string{"bob"}}, bob, true, true, true},
		"another operator":     {Rules{Operators: []string{"ada"}}, bob, true, false, true},
		"a group of operators": {Rules{OperatorGroups: []string{"sre"}}, ada, true, true, true},
		"no group":             {Rules{OperatorGroups: []string{"sre"}}, bob, true, false, true},
		"all operate":          {Rules{Operators: []string{Everybody}}, bob, true, true, true},
		"a viewer":             {Rules{Viewers: []string{"bob"}}, bob, true, false, false},
		"no viewer":            {Rules{Viewers: []string{"bob"}}, ada, false, false, false},
		"a group of viewers":   {Rules{ViewerGroups: []string{"sre"}}, ada, true, false, false},
		"an operator looks":    {Rules{Viewers: []string{"bob"}, Operators: []string{"ada"}}, ada, true, true, true},
		"a name is no group":   {Rules{OperatorGroups: []string{"bob"}}, bob, true, false, true},
		"a group is no name":   {Rules{Operators: []string{"sre"}}, ada, true, false, true},
	} {
		require.Equal(t, []bool{c.looks, c.operates, c.names},
			[]bool{c.rules.MayView(c.p), c.rules.MayOperate(c.p), c.rules.AnyOperator()}, name)
	}
}
