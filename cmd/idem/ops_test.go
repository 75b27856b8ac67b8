package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/crypto/bcrypt"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/issuertest"
	"github.com/idem-go/idem/internal/testenv"
)

// runningPage is idem ops under way, and a browser without JavaScript.
type runningPage struct {
	*runningCommand
	t      *testing.T
	url    string
	header http.Header
	client *http.Client
}

func startOps(t *testing.T, known map[string]*openedStore, args ...string) *runningPage {
	t.Helper()
	args = append([]string{"ops", "--listen", "127.0.0.1:0", "-o", "json"}, args...)
	p := &runningPage{startCommand(t, known, args...), t, "", http.Header{}, http.DefaultClient}
	require.Eventually(t, func() bool {
		select {
		case <-p.done:
			require.Fail(t, "it has ended", p.stderr.String())
		default:
		}
		var line struct{ URL string }
		first, _, ok := strings.Cut(p.stdout.String(), "\n")
		return ok && json.Unmarshal([]byte(first), &line) == nil && p.set(line.URL)
	}, soon, poll)
	return p
}

func (p *runningPage) set(url string) bool {
	p.url = url
	return url != ""
}

func (p *runningPage) as(name, password string) {
	r := http.Request{Header: http.Header{}}
	r.SetBasicAuth(name, password)
	p.header = r.Header
}

// ask requests a page, or sends a form.
func (p *runningPage) ask(path string, form url.Values) (status int, body string, r *http.Response) {
	p.t.Helper()
	method, content := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, content = http.MethodPost, strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, content)
	require.NoError(p.t, err)
	req.Header = p.header.Clone()
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	res, err := p.client.Do(req)
	require.NoError(p.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(p.t, err)
	return res.StatusCode, string(text), res
}

func (p *runningPage) get(path string) string {
	p.t.Helper()
	status, body, _ := p.ask(path, nil)
	require.Equal(p.t, http.StatusOK, status, body)
	return body
}

func htpasswd(t *testing.T, users map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "htpasswd")
	var text strings.Builder
	for name, password := range users {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		require.NoError(t, err)
		text.WriteString(name + ":" + string(hash) + "\n")
	}
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
	return path
}

// TestOps_Postgres: persons sign in; an operator replays, others see no button and are refused; the
// doctor asks the store; each action is in the audit file.
func TestOps_Postgres(t *testing.T) {
	dsn := testenv.Postgres(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	cluster, _ := fakeKafka(t, 2, kfake.SeedTopics(2, "orders", "orders.g.dlq", "orders.g.retry"))
	w := newDeadLetterWorldAt(t, cluster.ListenAddrs(), pgstore.New(pool), "orders")
	w.fail(w.events("a", 2)...)

	health, audit := testenv.FreeAddr(t), filepath.Join(t.TempDir(), "audit")
	p := startOps(
		t, nil, "-G", "g", "--store", dsn, "--brokers", strings.Join(w.brokers, ","), "--topics", "orders", "--health", health, "--audit-file", audit,
		"--basic-auth-file", htpasswd(t, map[string]string{"ada": "one", "bob": "two"}), "--operators", "ada", "--payloads", "operators", "--title", "production",
	)
	status, body, res := p.ask("", nil)
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, res.Header.Get("WWW-Authenticate"), "Basic")
	require.NotContains(t, body, "production")
	probe, err := http.Get("http://" + health + "/readyz")
	require.NoError(t, err)
	require.NoError(t, probe.Body.Close())
	require.Equal(t, http.StatusOK, probe.StatusCode)

	p.as("bob", "two")
	start := p.get("")
	for _, word := range []string{"production", "bob", "read-only"} {
		require.Contains(t, start, word)
	}
	list := p.get("dead-letters")
	place := regexp.MustCompile(`name="at" value="(\d/\d)"`).FindStringSubmatch(list)
	require.NotNil(t, place, list)
	require.Contains(t, p.get("dead-letter?topic=orders.g.dlq&partition="+strings.Replace(place[1], "/", "&offset=", 1)), "you may not see them")
	plan := func() (id, body string) {
		status, body, res := p.ask("plan", url.Values{"topic": {"orders.g.dlq"}, "at": {place[1]}})
		require.Equal(t, http.StatusOK, status, body)
		return res.Request.URL.Query().Get("id"), body
	}
	id, body := plan()
	require.NotContains(t, body, `action="./replay"`)
	status, _, _ = p.ask("replay", url.Values{"id": {id}})
	require.Equal(t, http.StatusForbidden, status)
	require.Empty(t, w.copies())

	p.as("ada", "one")
	require.Contains(t, p.get(""), "replay allowed")
	require.Contains(t, p.get("dead-letter?topic=orders.g.dlq&partition="+strings.Replace(place[1], "/", "&offset=", 1)), `aria-label="Value of the record"`)
	id, body = plan()
	require.Contains(t, body, `action="./replay"`)
	status, body, _ = p.ask("replay", url.Values{"id": {id}})
	require.Equal(t, http.StatusOK, status, body)
	require.Eventually(t, func() bool { return len(w.copies()) == 1 }, soon, poll)
	findings := p.get("doctor")
	require.Contains(t, findings, "postgres.store")
	require.Contains(t, findings, "kafka.dlq")
	require.Contains(t, p.get("outbox"), "--outbox", "the page names the flag")
	require.Contains(t, p.end(t), `"stopped"`)

	text, err := os.ReadFile(audit)
	require.NoError(t, err)
	outcomes := map[string]string{}
	for _, line := range auditLines(t, string(text)) {
		outcomes[line["user"].(string)+" "+line["audit"].(string)] += line["outcome"].(string) + " "
		if line["audit"] == "ops replay dead letter" {
			require.Equal(t, []any{"orders.g.dlq", place[1]}, []any{line["topic"], line["record"]})
			require.Regexp(t, "^a[01]$", line["event_id"])
		}
	}
	require.Equal(t, "begun done ", outcomes["ada ops replay"], "%v", outcomes)
	require.Equal(t, "replayed ", outcomes["ada ops replay dead letter"])
	require.Equal(t, "refused ", outcomes["bob ops replay"])
	require.Equal(t, "refused ", outcomes["bob ops payload"])
	_, err = http.Get(p.url)
	require.Error(t, err, "the server has ended")
}

// A header of a proxy names the person and the groups. Another sender is refused.
func TestOps_Header(t *testing.T) {
	_, stores := memory()
	args := []string{"-G", "g", "--store", inMemory, "--auth-header", "X-User", "--auth-groups-header", "X-Groups", "--operator-groups", "sre", "--viewer-groups", "dev"}
	p := startOps(t, stores, append(args, "--trusted-proxies", "127.0.0.0/8,::1")...)
	for groups, want := range map[string]string{"dev": "read-only", "dev,sre": "replay allowed", "sales": ""} {
		p.header = http.Header{"X-User": {"ada"}, "X-Groups": {groups}}
		status, body, _ := p.ask("", nil)
		require.Equal(t, want == "", status == http.StatusForbidden, groups)
		require.Contains(t, body, want)
	}
	p.header = http.Header{"X-Groups": {"sre"}}
	status, _, _ := p.ask("", nil)
	require.Equal(t, http.StatusUnauthorized, status)

	p = startOps(t, stores, append(args, "--trusted-proxies", "10.0.0.0/8")...)
	p.header = http.Header{"X-User": {"ada"}, "X-Groups": {"sre"}}
	status, _, _ = p.ask("", nil)
	require.Equal(t, http.StatusForbidden, status)
	p.end(t)
}

// Persons sign in at an issuer, and out. A start without the issuer fails.
func TestOps_OIDC(t *testing.T) {
	issuer := issuertest.New(t)
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(issuertest.ClientSecret+"\n"), 0o600))
	front, to := newTLSFront(t)
	issuer.Redirect(front.URL + "/ops/signin/callback")
	_, stores := memory()
	args := []string{
		"-G", "billing", "--store", inMemory, "--oidc-client-id", issuertest.ClientID, "--oidc-client-secret-file", secret, "--public-url", front.URL + "/ops/",
		"--prefix", "/ops/", "--viewer-groups", "dev", "--operators", "ada@example.com",
	}
	p := startOps(t, stores, append(args, "--oidc-issuer", issuer.URL)...)
	to(p.url)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	p.client, p.url = front.Client(), front.URL+"/ops/"
	p.client.Jar = jar
	p.header.Set("Accept", "text/html")
	issuer.SignIn(map[string]any{"email": "ada@example.com", "email_verified": true, "groups": []string{"dev"}})
	body := p.get("claims")
	for _, word := range []string{"ada@example.com", "replay allowed", "Sign out", "Claims"} {
		require.Contains(t, body, word)
	}
	status, body, _ := p.ask("signout", url.Values{})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "signed out")
	issuer.SignIn(map[string]any{"email": "eve@example.com", "email_verified": true})
	status, _, _ = p.ask("", nil)
	require.Equal(t, http.StatusForbidden, status)
	require.NotContains(t, p.stderr.String(), issuertest.ClientSecret)
	p.end(t)

	away := "http://" + testenv.FreeAddr(t)
	commandWith(t, stores, "", append(append([]string{"ops"}, args...), "--oidc-issuer", away)...).failed(t, exitFailure, "--oidc-issuer", away, "configuration cannot be read")
}

// The page speaks HTTPS with a certificate of its own. A renewed one counts at the next connection,
// and a bad one does not.
func TestOps_TLS(t *testing.T) {
	_, stores := memory()
	first, ca := certificate(t)
	second, ca2 := certificate(t)
	folder := t.TempDir()
	cert, key := filepath.Join(folder, "page.pem"), filepath.Join(folder, "page.key")
	install := func(pair tls.Certificate) {
		private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
		require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
	}
	client := func(ca string) *http.Client {
		pool := x509.NewCertPool()
		text, err := os.ReadFile(ca)
		require.NoError(t, err)
		require.True(t, pool.AppendCertsFromPEM(text))
		return &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		}}
	}
	install(first)
	args := []string{"-G", "billing", "--store", inMemory, "--listen-tls-cert", cert, "--listen-tls-key", key}
	p := startOps(t, stores, args...)
	require.True(t, strings.HasPrefix(p.url, "https://127.0.0.1:"), p.url)
	p.client = client(ca)
	require.Contains(t, p.get(""), "read-only")
	_, _, res := p.ask("", nil)
	require.Equal(t, 2, res.ProtoMajor)
	require.GreaterOrEqual(t, res.TLS.Version, uint16(tls.VersionTLS12))
	_, err := client(ca2).Get(p.url)
	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, err, &unknown)
	plainly, err := http.Get(strings.Replace(p.url, "https:", "http:", 1))
	require.NoError(t, err)
	require.NoError(t, plainly.Body.Close())
	require.Equal(t, http.StatusBadRequest, plainly.StatusCode)

	require.NoError(t, os.WriteFile(cert, []byte("half a certificate"), 0o600))
	for range 2 {
		require.Contains(t, p.get(""), "read-only")
	}
	require.Equal(t, 1, strings.Count(p.stderr.String(), "the old one stays in use"), p.stderr.String())
	install(second)
	p.client = client(ca2)
	require.Contains(t, p.get(""), "read-only")
	p.end(t)

	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: first.Certificate[0]}), 0o600))
	commandWith(t, stores, "", append([]string{"ops"}, args...)...).failed(t, exitUsage, "--listen-tls-cert", cert, "private key does not match")
}

// newTLSFront is a proxy with TLS, to an address that is set later.
func newTLSFront(t *testing.T) (front *httptest.Server, to func(string)) {
	t.Helper()
	var target *url.URL
	front = httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
	}})
	t.Cleanup(front.Close)
	return front, func(text string) {
		var err error
		target, err = url.Parse(text)
		require.NoError(t, err)
	}
}

// Without a way to sign in, the page is for this machine, and read-only unless the flags say else.
func TestOps_Loopback(t *testing.T) {
	s, stores := memory()
	finish(t, s, claim(t, s, inScope("order", "1"), dedupOrigin(1)), "")
	p := startOps(t, stores, "-G", "billing", "--store", inMemory, "--prefix", "/admin/")
	require.True(t, strings.HasSuffix(p.url, "/admin/"), p.url)
	require.Contains(t, p.get(""), "read-only")
	require.Contains(t, p.get("event?id=1"), "Yes, it was handled")
	p.header = http.Header{"Host": {"evil.example"}}
	status, _, _ := p.ask("", nil)
	require.Equal(t, http.StatusForbidden, status)
	p.end(t)
	p = startOps(t, stores, "-G", "billing", "--store", inMemory, "--operators", "*")
	require.Contains(t, p.get(""), "replay allowed")
}

// Stores in SQL databases reach the page by their names, and its doctor.
func TestOps_SQLStores(t *testing.T) {
	file := "sqlite:" + filepath.Join(t.TempDir(), "shop.db")
	urls := map[string]string{file: "sqlite "}
	if os.Getenv("IDEM_MARIADB_DSN") != "" { // SQLite needs no server
		cfg, err := driver.ParseDSN(testenv.MariaDB(t))
		require.NoError(t, err)
		urls["mysql://"+cfg.User+":"+cfg.Passwd+"@"+cfg.Addr+"/"+cfg.DBName] = "mysql " + cfg.Addr
	}
	for store, name := range urls {
		command(t, "ops", "-G", "billing", "--store", store).failed(t, exitFound, "tables", "idem migrate up")
		command(t, "migrate", "up", "--store", store).ok(t)
		a := &app{}
		l, err := a.openStore(t.Context(), store)
		require.NoError(t, err)
		finish(t, l.store, claim(t, l.store, inScope("order", "1"), dedupOrigin(1)), "")
		require.Implements(t, (*dedup.Lister)(nil), l.store)
		a.close()
		p := startOps(t, nil, "-G", "billing", "--store", store)
		body := p.get("event?id=1")
		require.Contains(t, body, "Yes, it was handled")
		require.Contains(t, body, name)
		require.Contains(t, p.get("claims"), name)
		require.Contains(t, p.get("doctor"), "sql.")
		require.NotContains(t, body+p.stderr.String(), "root:idem")
		p.end(t)
	}
}

// A store that is away ends the command. A file of passwords that is wrong does, too.
func TestOps_StartFails(t *testing.T) {
	away := testenv.FreeAddr(t)
	for _, store := range []string{"postgres://idem@" + away + "/db?sslmode=disable", "redis://" + away + "/0", "mysql://idem@" + away + "/db"} {
		began := time.Now()
		command(t, "ops", "-G", "g", "--store", store).failed(t, exitFailure, away)
		require.Less(t, time.Since(began), soon)
	}
	_, stores := memory()
	taken, _ := silentBroker(t)
	commandWith(t, stores, "", "ops", "-G", "g", "--store", inMemory, "--listen", taken).failed(t, exitFailure, "--listen", "in use")
	path := filepath.Join(t.TempDir(), "htpasswd")
	require.NoError(t, os.WriteFile(path, []byte("ada:plain\n"), 0o600))
	commandWith(t, stores, "", "ops", "-G", "g", "--store", inMemory, "--basic-auth-file", path).failed(t, exitUsage, "--basic-auth-file", "not of bcrypt")
}

// A request that is under way at the end gets its answer.
func TestOps_EndWaitsForRequests(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{})
	store, stores := memory()
	stores[inMemory].store = &slowStore{Store: store, Operator: store, entered: entered, release: release}
	p := startOps(t, stores, "-G", "billing", "--store", inMemory)
	answered := make(chan int, 1)
	go func() {
		res, err := http.Get(p.url + "event?id=1&type=order")
		if err != nil {
			answered <- 0
			return
		}
		answered <- res.StatusCode
		_ = res.Body.Close()
	}()
	<-entered
	p.stop()
	close(release)
	require.Equal(t, http.StatusOK, <-answered)
	p.end(t)
}

// slowStore answers when it may.
type slowStore struct {
	dedup.Store
	dedup.Operator
	entered, release chan struct{}
}

func (s *slowStore) Inspect(ctx context.Context, keys ...dedup.Key) ([]dedup.Record, error) {
	close(s.entered)
	<-s.release
	return s.Operator.Inspect(ctx, keys...)
}
