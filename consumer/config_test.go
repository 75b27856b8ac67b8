package consumer

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
)

func good() Config {
	return Config{Brokers: []string{"127.0.0.1:1"}, Group: "g", Topics: []string{"t"}, Store: forever(), Logger: quiet}
}

var nothing = func(context.Context, *idem.Message) error { return nil }

// TestDefaults_SectionH: the safe defaults, one by one.
func TestDefaults_SectionH(t *testing.T) {
	sc, err := DefaultSaramaConfig(good())
	require.NoError(t, err)
	require.Equal(t, sarama.OffsetOldest, sc.Consumer.Offsets.Initial)               // K-17
	require.False(t, sc.Consumer.Group.ResetInvalidOffsets)                          // K-17
	require.Equal(t, sarama.ReadCommitted, sc.Consumer.IsolationLevel)               // K-30
	require.True(t, sc.Consumer.Return.Errors)                                       // K-05
	require.Equal(t, 20, sc.Consumer.Retry.Max)                                      // K-15
	require.GreaterOrEqual(t, sc.Consumer.MaxProcessingTime, 10*time.Second)         // K-14
	require.Equal(t, 64, sc.ChannelBufferSize)                                       //
	require.False(t, sc.Consumer.Offsets.AutoCommit.Enable)                          // K-04
	require.Equal(t, 60*time.Second, sc.Consumer.Group.Rebalance.Timeout)            //
	require.Equal(t, 20*time.Second, sc.Consumer.Group.Session.Timeout)              //
	require.Equal(t, 3*time.Second, sc.Consumer.Group.Heartbeat.Interval)            //
	require.Equal(t, time.Minute, sc.Metadata.RefreshFrequency)                      // K-29
	require.False(t, sc.Metadata.AllowAutoTopicCreation)                             // K-36
	require.Zero(t, sc.Consumer.Fetch.Max)                                           // K-41
	require.EqualValues(t, 64<<20, sarama.MaxDecompressedBatchSize)                  // G-01
	require.Equal(t, sarama.WaitForAll, sc.Producer.RequiredAcks)                    // K-35
	require.True(t, sc.Producer.Idempotent)                                          // K-35
	require.GreaterOrEqual(t, sc.Producer.Retry.Max, 10)                             // K-35
	require.Equal(t, "idem", sc.ClientID)                                            //
	require.Equal(t, sarama.DefaultVersion, sc.Version)                              // K-37
	require.Equal(t, []string{"cooperative-sticky", "range"}, strategies(t, good())) // K-26
	cooperative := good()
	cooperative.Cooperative = true
	require.Equal(t, []string{"cooperative-sticky"}, strategies(t, cooperative))
}

func strategies(t *testing.T, cfg Config) (names []string) {
	sc, err := DefaultSaramaConfig(cfg)
	require.NoError(t, err)
	for _, s := range sc.Consumer.Group.Rebalance.GroupStrategies {
		names = append(names, s.Name())
	}
	return names
}

// TestNew_Refuses: every mistake by itself, with a message that names it.
func TestNew_Refuses(t *testing.T) {
	hook := func(f func(*sarama.Config)) func(*Config) { return func(c *Config) { c.Sarama = f } }
	for want, spoil := range map[string]func(*Config){
		"Brokers is empty":               func(c *Config) { c.Brokers = nil },
		"Group is empty":                 func(c *Config) { c.Group = "" },
		"Topics is empty":                func(c *Config) { c.Topics = nil },
		"Topics contains an empty name":  func(c *Config) { c.Topics = []string{""} },
		"Topics contains a name twice":   func(c *Config) { c.Topics = []string{"a", "b", "a"} },
		"would be consumed again":        func(c *Config) { c.Topics = []string{"a", "a.g.dlq"} }, // T-08
		"no store":                       func(c *Config) { c.Store = nil },
		"Start is unknown(9)":            func(c *Config) { c.Start = 9 },
		"OnGap is unknown(9)":            func(c *Config) { c.OnGap = 9 },
		"WhenStalled is unknown(9)":      func(c *Config) { c.WhenStalled = 9 },
		"OnLostOffsets is unknown(9)":    func(c *Config) { c.OnLostOffsets = 9 },
		"CreateDeadLetterTopics":         func(c *Config) { c.CreateDeadLetterTopics = &TopicSpec{Partitions: -1} },
		"two thirds":                     func(c *Config) { c.Grace = 41 * time.Second },
		"Lease":                          func(c *Config) { c.Lease = time.Millisecond },
		"observer int implements no":     func(c *Config) { c.Observers = []observe.Observer{1} },
		"memstore":                       func(c *Config) { c.Store = memstore.New() }, // rule 31
		"AutoCommit.Enable":              hook(func(sc *sarama.Config) { sc.Consumer.Offsets.AutoCommit.Enable = true }),
		"Return.Errors must be true":     hook(func(sc *sarama.Config) { sc.Consumer.Return.Errors = false }),
		"ResetInvalidOffsets":            hook(func(sc *sarama.Config) { sc.Consumer.Group.ResetInvalidOffsets = true }),
		"use Start":                      hook(func(sc *sarama.Config) { sc.Consumer.Offsets.Initial = sarama.OffsetNewest }),
		"use InstanceID":                 hook(func(sc *sarama.Config) { sc.Consumer.Group.InstanceId = "x" }),
		"RequiredAcks":                   hook(func(sc *sarama.Config) { sc.Producer.RequiredAcks = sarama.WaitForLocal }),
		"Return.Successes":               hook(func(sc *sarama.Config) { sc.Producer.Return.Successes = false }),
		"ReadTimeout":                    hook(func(sc *sarama.Config) { sc.Net.ReadTimeout = 10 * time.Second }),
		"Heartbeat.Interval must be <":   hook(func(sc *sarama.Config) { sc.Consumer.Group.Heartbeat.Interval = time.Hour }),
		"SASL/PLAIN without TLS":         func(c *Config) { c.SASL = &SASL{Mechanism: "PLAIN", User: "u", Password: "p"} },         // G-07
		"SASL/SCRAM-SHA-256 without TLS": func(c *Config) { c.SASL = &SASL{Mechanism: "SCRAM-SHA-256", User: "u", Password: "p"} }, // G-07
		"SASL/SCRAM-SHA-512 without TLS": func(c *Config) { c.SASL = &SASL{Mechanism: "SCRAM-SHA-512", User: "u", Password: "p"} },
		"SASL/OAUTHBEARER without TLS":   hook(func(sc *sarama.Config) { sc.Net.SASL.Enable, sc.Net.SASL.Mechanism = true, sarama.SASLTypeOAuth }),
		"InsecureSkipVerify":             func(c *Config) { c.TLS = &tls.Config{InsecureSkipVerify: true} },                              //nolint:gosec // refused
		"trusts any server":              func(c *Config) { c.TLS = &tls.Config{InsecureSkipVerify: true, VerifyConnection: acceptAll} }, //nolint:gosec // refused
		"MinVersion":                     func(c *Config) { c.TLS = &tls.Config{MinVersion: tls.VersionTLS11} },                          //nolint:gosec // refused
		"OAUTHBEARER without TLS":        func(c *Config) { c.SASL = &SASL{Mechanism: "OAUTHBEARER", Token: fixedToken} },
		"Net.SASL.TokenProvider": func(c *Config) {
			c.SASL, c.TLS = &SASL{Mechanism: "OAUTHBEARER", User: "u", Password: "p"}, &tls.Config{}
		}, //nolint:gosec // 1.2 by default
		"SASL: Mechanism is empty":        func(c *Config) { c.SASL = &SASL{User: "u", Password: "p"} },
		"The SASL mechanism":              func(c *Config) { c.SASL = &SASL{Mechanism: "CRAM", User: "u", Password: "p"} },
		"Net.SASL.User must not be empty": func(c *Config) { c.SASL = &SASL{Mechanism: "SCRAM-SHA-256", Password: "p"} },
	} {
		cfg := good()
		spoil(&cfg)
		_, err := New(cfg, routed(nothing))
		require.ErrorContains(t, err, want)
	}
	_, err := New(good(), nil)
	require.ErrorContains(t, err, "router is nil")
	_, err = New(Config{}, idem.NewRouter())
	for _, want := range []string{"Brokers", "Group", "Topics", "no handlers"} {
		require.ErrorContains(t, err, want, "all mistakes at once")
	}
	_, err = NewGroupHandler(Config{}, routed(nothing))
	require.ErrorContains(t, err, "Group is empty")
	_, err = NewGroupHandler(Config{Group: "g", Store: memstore.New()}, routed(nothing))
	require.ErrorContains(t, err, "memstore", "rule 31")
}

// TestNew_Accepts settings that are dangerous only together with others.
func TestNew_Accepts(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"nothing": func(*Config) {},
		"newest":  func(c *Config) { c.Start = Newest },
		"PLAIN on TLS": func(c *Config) {
			c.SASL, c.TLS = &SASL{Mechanism: "PLAIN", User: "u", Password: "p"}, &tls.Config{} //nolint:gosec // 1.2 by default
		},
		"SCRAM on TLS": func(c *Config) {
			c.SASL, c.TLS = &SASL{Mechanism: "SCRAM-SHA-512", User: "u", Password: "p"}, &tls.Config{} //nolint:gosec // 1.2 by default
		},
		"OAUTHBEARER on TLS": func(c *Config) {
			c.SASL, c.TLS = &SASL{Mechanism: "OAUTHBEARER", Token: fixedToken}, &tls.Config{} //nolint:gosec // 1.2 by default
		},
		"OAUTHBEARER without TLS on purpose": func(c *Config) {
			c.SASL, c.AllowInsecure = &SASL{Mechanism: "OAUTHBEARER", Token: fixedToken}, true
		},
		"SCRAM without TLS on purpose": func(c *Config) {
			c.SASL, c.AllowInsecure = &SASL{Mechanism: "SCRAM-SHA-256", User: "u", Password: "p"}, true
		},
		"insecure on purpose": func(c *Config) {
			c.SASL, c.AllowInsecure = &SASL{Mechanism: "PLAIN", User: "u", Password: "p"}, true
			c.TLS = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10} //nolint:gosec // on purpose
		},
		"CA that is read anew": func(c *Config) {
			c.TLS = &tls.Config{InsecureSkipVerify: true, VerifyConnection: reloadingCA(t).VerifyConnection} //nolint:gosec // it verifies
		},
		"range only": func(c *Config) {
			c.Sarama = func(sc *sarama.Config) {
				sc.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
			}
		},
	} {
		cfg := good()
		change(&cfg)
		c, err := New(cfg, routed(nothing))
		require.NoError(t, err, name)
		require.NoError(t, c.handler.Close())
	}
	cfg := good()
	cfg.TLS = &tls.Config{} //nolint:gosec // the point of it
	sc, err := DefaultSaramaConfig(cfg)
	require.NoError(t, err)
	require.EqualValues(t, tls.VersionTLS12, sc.Net.TLS.Config.MinVersion)
	require.Zero(t, cfg.TLS.MinVersion, "the caller's own is not touched")
}

// TestSASL_Redacted_G04: the password shows nowhere.
func TestSASL_Redacted_G04(t *testing.T) {
	s := SASL{Mechanism: "PLAIN", User: "user", Password: "canary"}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "sasl", s, "pointer", &s, "inside", struct{ S *SASL }{&s}, "config", Config{SASL: &s})
	cfg := good()
	cfg.SASL, cfg.AllowInsecure = &s, true
	sc, err := DefaultSaramaConfig(cfg)
	require.NoError(t, err)
	for _, text := range []string{
		log.String(), fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s", s, &s, s, &s), fmt.Sprintf("%v %+v %#v", Config{SASL: &s}, &Config{SASL: &s}, Config{SASL: &s}), fmt.Sprint(describe(sc, cfg)...),
	} {
		require.NotContains(t, text, "canary")
	}
	require.Contains(t, log.String(), "user")
}

// TestSCRAM answers a challenge: the conversation of RFC 7677, section 3, but for the nonce.
func TestSCRAM(t *testing.T) {
	cfg := good()
	cfg.SASL, cfg.AllowInsecure = &SASL{Mechanism: "SCRAM-SHA-256", User: "user", Password: "pencil"}, true
	sc, err := DefaultSaramaConfig(cfg)
	require.NoError(t, err)
	c := sc.Net.SASL.SCRAMClientGeneratorFunc()
	require.NoError(t, c.Begin("user", "pencil", ""))
	first, err := c.Step("")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(first, "n,,n=user,r="))
	nonce := strings.TrimPrefix(first, "n,,n=user,r=")
	proof, err := c.Step("r=" + nonce + "server,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
	require.NoError(t, err)
	require.Contains(t, proof, "p=")
	_, err = c.Step("v=bm90IHRoZSBzZXJ2ZXI=")
	require.Error(t, err, "a server that does not know the password")
}

// fatal is how a start ends with an error.
func fatal(t *testing.T, err error) error {
	t.Helper()
	c, newErr := New(good(), routed(nothing))
	require.NoError(t, newErr)
	defer c.handler.Close()
	return c.life.Retry.Fatal(err)
}

func TestClassification(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("x: %w", err) }
	for err, want := range map[error]error{
		sarama.ErrFencedInstancedId:        ErrFenced,
		sarama.ErrGroupAuthorizationFailed: ErrUnauthorized,
		sarama.ErrTopicAuthorizationFailed: ErrUnauthorized,
		sarama.ErrSASLAuthenticationFailed: ErrUnauthorized,
		error(&GapError{Topic: "t"}):       nil,
	} {
		end := fatal(t, wrap(err))
		require.ErrorIs(t, end, err)
		if want != nil {
			require.ErrorIs(t, end, want)
		}
	}
	for _, err := range []error{
		nil, errTest, sarama.ErrOutOfBrokers, sarama.ErrRebalanceInProgress, sarama.ErrUnknownMemberId, sarama.ErrUnknownTopicOrPartition,
		sarama.ErrSessionConsumeClaimExited, sarama.ErrRequestTimedOut, context.DeadlineExceeded,
	} {
		require.NoError(t, fatal(t, err), "K-21: %v passes", err)
	}
}

// TestReady_Handler: the probe answers with the result of Ready.
func TestReady_Handler(t *testing.T) {
	router := idem.NewRouter()
	idem.On(router, "thing", func(context.Context, idem.Event[struct{}]) error { return nil })
	c, err := New(good(), router)
	require.NoError(t, err)
	defer c.handler.Close()
	probe := func() (int, string) {
		rec := httptest.NewRecorder()
		c.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		var answer struct {
			Ready   bool
			Reasons []string
		}
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &answer))
		require.Equal(t, answer.Ready, rec.Code == http.StatusOK)
		return rec.Code, strings.Join(answer.Reasons, ";")
	}
	code, reasons := probe()
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "not in the group", reasons)
	var not *NotReadyError
	require.ErrorAs(t, c.Ready(), &not)
	require.ErrorIs(t, c.Ready(), ErrNotReady)

	sess := newFakeSession(t.Context(), nil)
	require.NoError(t, c.handler.Setup(sess))
	code, _ = probe()
	require.Equal(t, http.StatusOK, code, "a member without partitions is ready")
	for i := range 1000 { // a renamed type must not lose events in silence (rule 47)
		m := &idem.Message{Topic: "t", Offset: int64(i), Value: []byte(`{"type":"renamed"}`)}
		require.NoError(t, c.handler.g.Processor().Handle(t.Context(), m))
	}
	code, reasons = probe()
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, reasons, "types without a handler")
	c.handler.g.Fail(errTest)
	code, reasons = probe()
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, reasons, "stopped: test")
	require.NoError(t, c.handler.Cleanup(sess))
}

// checked is a store that looks at itself.
type checked struct {
	dedup.Store
	answers []error
	calls   int
}

func (c *checked) Check(context.Context) ([]string, error) {
	c.calls++
	if c.calls > len(c.answers) {
		return []string{"it is slow"}, nil
	}
	return nil, c.answers[c.calls-1]
}

func (c *checked) Ping(context.Context) error { return nil }

// TestRun_UnsafeStore_R10: an unsafe store ends Run before anything is consumed; one that is down
// is waited for.
func TestRun_UnsafeStore_R10(t *testing.T) {
	brokers := fakeBrokers(t, 1, "t", "t.g.dlq")
	unsafe := &checked{Store: forever(), answers: []error{errTest}}
	m := start(t, Config{Brokers: brokers, Group: "g", Topics: []string{"t"}, Store: unsafe}, routed(nothing))
	require.ErrorIs(t, m.wait(t, soon), errTest)

	down := fmt.Errorf("%w: refused", dedup.ErrUnavailable)
	away := &checked{Store: forever(), answers: []error{down, down}}
	m = start(t, Config{Brokers: brokers, Group: "g", Topics: []string{"t"}, Store: away}, routed(nothing))
	require.Eventually(t, func() bool { return m.Ready() == nil }, soon, poll)
	require.NoError(t, m.end())
	require.Equal(t, 1, m.count("store unavailable at start"))
	require.Equal(t, 1, m.count("store available again"))
	require.Equal(t, 1, m.count("it is slow"))

	m = start(t, Config{Brokers: brokers, Group: "g", Topics: []string{"t"}, Store: &checked{Store: forever(), answers: []error{down, down, down, down, down}}},
		routed(nothing))
	require.Eventually(t, func() bool { return m.count("store unavailable at start") > 0 }, soon, poll)
	require.NoError(t, m.end(), "a stop while waiting is a stop in order")
}
