package bootstrap

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/internal/testenv"
)

// TestJudge_K21: one broker that answers is enough, and silent ones are left out.
func TestJudge_K21(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	denied, stopped, broken := sarama.ErrSASLAuthenticationFailed, errors.New("stopped"), errors.New("broken")
	mechanism, out, silence := sarama.ErrUnsupportedSASLMechanism, sarama.ErrOutOfBrokers, os.ErrDeadlineExceeded
	list := []string{"a", "b"}
	for name, c := range map[string]struct {
		got   []answer
		ended error
		want  Found
		is    []error
		not   []error
	}{
		"all answer":                 {[]answer{{"b", nil}, {"a", nil}}, nil, Found{[]string{"b", "a"}, []string{"b", "a"}}, nil, nil},
		"one is silent":              {[]answer{{"b", nil}}, nil, Found{[]string{"b"}, []string{"b"}}, nil, nil},
		"one refuses":                {[]answer{{"a", refused}, {"b", nil}}, nil, Found{[]string{"b"}, []string{"a", "b"}}, nil, nil},
		"one is broken":              {[]answer{{"a", broken}, {"b", nil}}, nil, Found{[]string{"b"}, []string{"a", "b"}}, nil, nil},
		"one is slow":                {[]answer{{"a", silence}, {"b", nil}}, nil, Found{[]string{"b"}, []string{"b"}}, nil, nil},
		"one refuses the login":      {[]answer{{"b", nil}, {"a", denied}}, nil, Found{[]string{"b"}, []string{"b"}}, nil, nil},
		"an answer and the end":      {[]answer{{"b", nil}}, stopped, Found{[]string{"b"}, []string{"b"}}, nil, nil},
		"all refuse":                 {[]answer{{"a", refused}, {"b", refused}}, nil, Found{}, []error{out, syscall.ECONNREFUSED}, []error{silence}},
		"one refuses, one is silent": {[]answer{{"a", refused}}, nil, Found{}, []error{out, syscall.ECONNREFUSED, silence}, nil},
		"all are silent":             {nil, nil, Found{}, []error{out, silence}, nil},
		"a refused login":            {[]answer{{"b", broken}, {"a", denied}}, nil, Found{}, []error{denied}, []error{out, silence, broken}},
		"the code of one":            {[]answer{{"a", mechanism}, {"b", refused}}, nil, Found{}, []error{out, syscall.ECONNREFUSED}, []error{mechanism}},
		"the end of the context":     {[]answer{{"a", refused}}, stopped, Found{}, []error{stopped}, []error{out, silence}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := judge(list, c.got, c.ended)
			require.Equal(t, c.want, found)
			require.Equal(t, c.is == nil, err == nil, err)
			for _, is := range c.is {
				require.ErrorIs(t, err, is)
			}
			for _, not := range c.not {
				require.NotErrorIs(t, err, not)
			}
		})
	}
}

func settings() *sarama.Config {
	sc := sarama.NewConfig()
	sc.ClientID = "test"
	return sc
}

// TestFind_K21 asks brokers that answer, refuse and are silent, wherever they stand in the list.
func TestFind_K21(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	answers, refuses, hangs := cluster.ListenAddrs(), testenv.FreeAddr(t), testenv.SilentAddr(t)
	limits := Limits{Answer: 30 * time.Second, Grace: 100 * time.Millisecond}
	all := []string{hangs, answers[0], refuses, answers[1]}
	for range all {
		all = append(all[1:], all[0])
		began := time.Now()
		found, err := Find(t.Context(), all, settings(), limits)
		require.NoError(t, err, all)
		require.Less(t, time.Since(began), limits.Answer)
		require.Contains(t, answers, found.Answered[0])
		require.Subset(t, found.Usable, found.Answered)
		require.NotContains(t, found.Usable, hangs)
	}
	began := time.Now()
	found, err := Find(t.Context(), []string{refuses, answers[0]}, settings(), Limits{time.Minute, time.Minute})
	require.NoError(t, err)
	require.Less(t, time.Since(began), time.Minute, "all have answered")
	slices.Sort(found.Usable)
	want := []string{answers[0], refuses}
	slices.Sort(want)
	require.Equal(t, want, found.Usable)
}

// TestFind_NoAnswer_K21: the search ends in time and names the reason of each broker.
func TestFind_NoAnswer_K21(t *testing.T) {
	t.Parallel()
	refuses, hangs := testenv.FreeAddr(t), testenv.SilentAddr(t)
	began := time.Now()
	_, err := Find(t.Context(), []string{hangs, refuses}, settings(), Limits{Answer: time.Second})
	require.GreaterOrEqual(t, time.Since(began), time.Second)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.ErrorContains(t, err, "broker "+hangs+": no answer in time")
	require.ErrorContains(t, err, "broker "+refuses+": ")

	_, err = Find(t.Context(), nil, settings(), Limits{Answer: time.Second})
	require.ErrorIs(t, err, sarama.ErrOutOfBrokers)

	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	defer time.AfterFunc(100*time.Millisecond, func() { cancel(stopped) }).Stop()
	_, err = Find(ctx, []string{hangs}, settings(), Limits{Answer: time.Hour})
	require.ErrorIs(t, err, stopped)
}

// TestFind_Cluster_K21: a broker that has just started knows no other broker, and is not asked
// first. One that must not name the others may be.
func TestFind_Cluster_K21(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	all := cluster.ListenAddrs()
	var code atomic.Int32
	cluster.ControlKey(int16(kmsg.DescribeCluster), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if cluster.CurrentNode() != 0 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
		resp.ErrorCode = int16(code.Load()) //nolint:gosec // a code of Kafka
		return resp, nil, true
	})
	for answer, answers := range map[sarama.KError]bool{
		sarama.ErrNoError:                    false,
		sarama.ErrClusterAuthorizationFailed: true,
		sarama.ErrUnsupportedVersion:         true,
	} {
		code.Store(int32(answer))
		found, err := Find(t.Context(), all, settings(), Limits{Answer: time.Minute, Grace: time.Minute})
		require.NoError(t, err, answer)
		require.Contains(t, found.Answered, all[1])
		require.Equal(t, answers, slices.Contains(found.Answered, all[0]), answer)
	}
}

// TestFind_Kinds_K21 asks controllers, old clients and proxies.
func TestFind_Kinds_K21(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	for name, version := range map[string]sarama.KafkaVersion{
		"before KIP-700": sarama.V2_6_0_0, "old": sarama.V1_0_0_0, "later": sarama.MaxVersion,
	} {
		sc := settings()
		sc.Version = version
		for _, asks := range []bool{true, false} {
			sc.ApiVersionsRequest = asks
			_, err := Find(t.Context(), cluster.ListenAddrs(), sc, Limits{Answer: time.Minute})
			require.NoError(t, err, name)
		}
	}
	for name, c := range map[string]struct {
		keys []int16
		code int16
		want error
	}{
		"a controller":     {[]int16{18, 60}, 0, errNoBroker},
		"before Kafka 2.8": {[]int16{3, 18}, 0, nil},
		"a proxy":          {nil, int16(sarama.ErrUnsupportedVersion), nil},
	} {
		broker := sarama.NewMockBroker(t, 1)
		answer := sarama.NewMockApiVersionsResponse(t).SetApiKeys(apiKeys(c.keys...))
		broker.SetHandlerByMap(map[string]sarama.MockResponse{"ApiVersionsRequest": sarama.NewMockWrapper(&sarama.ApiVersionsResponse{
			ErrorCode: c.code, ApiKeys: apiKeys(c.keys...),
		})})
		if c.code == 0 {
			broker.SetHandlerByMap(map[string]sarama.MockResponse{"ApiVersionsRequest": answer})
		}
		_, err := Find(t.Context(), []string{broker.Addr()}, settings(), Limits{Answer: time.Minute})
		require.ErrorIs(t, err, c.want, name)
		broker.Close()
	}
}

func apiKeys(keys ...int16) (all []sarama.ApiVersionsResponseKey) {
	for _, key := range keys {
		all = append(all, sarama.ApiVersionsResponseKey{ApiKey: key, MaxVersion: 1})
	}
	return all
}

// TestClient_Metrics_K21: the search leaves the metrics of the client alone.
func TestClient_Metrics_K21(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	for range 20 {
		sc := settings()
		client, err := Client(t.Context(), cluster.ListenAddrs(), sc)
		require.NoError(t, err)
		before := len(sc.MetricRegistry.GetAll())
		require.Positive(t, before)
		require.Never(t, func() bool { return len(sc.MetricRegistry.GetAll()) < before }, 50*time.Millisecond, 5*time.Millisecond)
		require.NoError(t, client.Close())
	}
}

// TestClient_Context_K21: the end of the context interrupts the search and the opening of a client,
// and leaves an open client alone.
func TestClient_Context_K21(t *testing.T) {
	t.Parallel()
	hangs, enough := testenv.SilentAddr(t), errors.New("enough")
	for name, list := range map[string][]string{
		"one broker": {hangs}, "two brokers": {hangs, testenv.SilentAddr(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithCancelCause(t.Context())
			sc := settings()
			sc.Net.ReadTimeout = time.Hour
			asked := make(chan struct{})
			dialer := &signallingDialer{dialed: asked}
			sc.Net.Proxy.Enable, sc.Net.Proxy.Dialer = true, dialer
			go func() {
				<-asked
				stop(enough)
			}()
			_, err := Client(ctx, list, sc)
			require.ErrorIs(t, err, enough)
		})
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	ctx, stop := context.WithCancel(t.Context())
	client, err := Client(ctx, cluster.ListenAddrs(), settings())
	require.NoError(t, err)
	stop()
	require.NoError(t, client.RefreshMetadata())
	require.NoError(t, client.Close())
	_, err = Client(ctx, cluster.ListenAddrs(), settings())
	require.ErrorIs(t, err, context.Canceled)
}

// signallingDialer tells of the first connection.
type signallingDialer struct {
	dialed chan<- struct{}
	once   sync.Once
}

func (d *signallingDialer) Dial(network, addr string) (net.Conn, error) {
	conn, err := net.Dial(network, addr)
	d.once.Do(func() { close(d.dialed) })
	return conn, err
}

// TestFind_Login_K21: a refused login ends the search at once.
func TestFind_Login_K21(t *testing.T) {
	t.Parallel()
	broker := sarama.NewMockBroker(t, 1)
	t.Cleanup(broker.Close)
	keys := apiKeys(3, 17, 18, 36) // Metadata, SaslHandshake, ApiVersions, SaslAuthenticate
	login := func(result sarama.KError) {
		broker.SetHandlerByMap(map[string]sarama.MockResponse{
			"ApiVersionsRequest":      sarama.NewMockApiVersionsResponse(t).SetApiKeys(keys),
			"SaslHandshakeRequest":    sarama.NewMockSaslHandshakeResponse(t).SetEnabledMechanisms([]string{sarama.SASLTypePlaintext}),
			"SaslAuthenticateRequest": sarama.NewMockSaslAuthenticateResponse(t).SetError(result),
		})
	}
	sc := settings()
	sasl := &sc.Net.SASL
	sasl.Enable, sasl.Version, sasl.Mechanism = true, sarama.SASLHandshakeV1, sarama.SASLTypePlaintext
	sasl.User, sasl.Password = "ada", "secret"
	list := []string{testenv.SilentAddr(t), broker.Addr()}
	login(sarama.ErrSASLAuthenticationFailed)
	_, err := Find(t.Context(), list, sc, Limits{Answer: time.Hour})
	require.ErrorIs(t, err, sarama.ErrSASLAuthenticationFailed)
	login(sarama.ErrNoError)
	found, err := Find(t.Context(), list, sc, Limits{Answer: time.Hour})
	require.NoError(t, err)
	require.Equal(t, []string{broker.Addr()}, found.Answered)
}
