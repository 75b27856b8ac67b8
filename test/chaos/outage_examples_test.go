package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/testenv"
)

// Kafka, Postgres and Redis are away for 30 s, one after the other, while the examples work: the
// chain, the bank, and the first program of the README. The chain is the examples payments,
// orderstatus and notifier with a relay. No event is lost, given up or done twice (R-19, P-11,
// T-03, H-12).
func TestOutages_Examples(t *testing.T) {
	needTime(t)
	t.Parallel() // with services of its own, it waits most of the time
	length, faults := 30*time.Second, []fault{crash}
	if soak() {
		faults = []fault{crash, freeze}
	}
	services := privateServices(t, "postgres", "redis", "kafka")
	kafka := newCluster(t, []string{services.brokers})
	// Longer than the outages take on a busy machine, where a service starts within a minute. The
	// payments that are left when the last outage is over begin at once.
	over := time.Duration(len(faults)) * 3 * (length + 90*time.Second)
	hurry := filepath.Join(t.TempDir(), "hurry")
	const perSecond = 4
	payments := int(over.Seconds()) * perSecond
	chain := startIn(t, "../../examples", "chain", programs.path(t, "chain"), services.addresses(),
		"-kill=false", "-payments", fmt.Sprint(payments), "-over", over.String(), "-hurry", hurry)
	shop := openShop(t, kafka)
	bank := openBank(t, services)
	// The chain compiles its programs first. Behind that it has a time limit of its own.
	for len(chain.stdout.lines("payments begin")) == 0 && t.Context().Err() == nil {
		chain.requireRunning()
		waitABit(t)
	}
	flow := startFlow(t, 1_000_000, shop.producer)
	bank.startTransfers(t, 10)
	for _, how := range faults {
		for _, service := range []string{"kafka", "postgres", "redis"} {
			waitFor(t, "mails flow", len(shop.worker.stdout.lines("mail to"))+50, func() int { return len(shop.worker.stdout.lines("mail to")) }, shop.worker)
			waitFor(t, "transfers flow", bank.answered()+50, bank.answered, bank.worker)
			chain.requireRunning()
			t.Logf("%s %s", service, how.name)
			services.takeAway(how, length, service)
		}
	}
	chain.requireRunning()
	require.NoError(t, os.WriteFile(hurry, nil, 0o600))
	bank.requireBookedOnce(t)
	n := flow.end()
	shop.requireOnce(t, n)
	select {
	case <-chain.done:
	case <-time.After(over + 2*time.Minute):
		require.Fail(t, "the chain does not end", chain.stdout.tail(30))
	}
	require.NoError(t, chain.err, "%s", chain.stdout.tail(60))
	require.NotEmpty(t, chain.stdout.lines("OK in"), "%s", chain.stdout.tail(60))
	soaked(t, "TestOutages_Examples", 0, payments+n+bank.answered(), 0, 3*len(faults), 0, "none lost, none given up, none twice")
}

// addresses is the environment of a program that uses the services.
func (s *services) addresses() []string {
	return []string{"KAFKA_BROKERS=" + s.brokers, "POSTGRES_URL=" + s.postgres, "REDIS_URL=" + s.redis}
}

// firstShop is the first program of the README.
type firstShop struct {
	kafka    *cluster
	worker   *proc
	producer *producer
}

func openShop(t *testing.T, kafka *cluster) *firstShop {
	t.Helper()
	for _, topic := range []string{"payments", "payments.orders.dlq"} { // the program's own names
		err := kafka.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false)
		require.NoError(t, err)
	}
	s := &firstShop{kafka: kafka}
	s.producer = newProducer(t, kafka.brokers, "payments", func(d *delivery) []byte {
		return fmt.Appendf(nil, `{"event_id":"order-%d","type":"order.created","email":"%d@example.com"}`, d.order, d.order)
	})
	s.worker = startIn(t, t.TempDir(), "quickstart", programs.path(t, "quickstart"), nil, kafka.brokers...)
	return s
}

// requireOnce requires one mail for each of n orders.
func (s *firstShop) requireOnce(t *testing.T, n int) {
	t.Helper()
	s.kafka.waitNoLag("orders", "payments", time.Minute)
	s.worker.stop(20 * time.Second)
	mails := make(map[string]int)
	for _, line := range s.worker.stdout.lines("mail to") {
		mails[strings.Fields(line)[2]]++
	}
	require.Len(t, mails, n)
	for to, times := range mails {
		require.Equal(t, 1, times, to)
	}
	require.Zero(t, s.kafka.deadLetters("orders", "payments"))
}

// transferBank is the example transfer, with clients that insist on an answer.
type transferBank struct {
	worker   *proc
	postgres string
	addr     string
	client   *http.Client
	stop     context.CancelFunc
	clients  sync.WaitGroup
	asked    atomic.Int64
	booked   atomic.Int64
	wrong    atomic.Pointer[string]
}

func openBank(t *testing.T, s *services) *transferBank {
	t.Helper()
	b := &transferBank{addr: testenv.FreeAddr(t), postgres: s.database(t, "bank")}
	b.worker = start(t, "transfer", programs.path(t, "transfer"), nil,
		"-listen", b.addr, "-postgres", b.postgres, "-redis", s.redis, "-seed", "10")
	base := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(base.CloseIdleConnections)
	b.client = &http.Client{Transport: &httpidem.Transport{
		Base: base, Attempts: 10_000, Backoff: 50 * time.Millisecond, MaxBackoff: time.Second, MaxElapsed: 3 * time.Minute,
		// The bank rolls back before an answer 500.
		Retry: func(r *http.Response) bool {
			return httpidem.DefaultRetry(r) || r.StatusCode == http.StatusInternalServerError
		},
	}}
	return b
}

// database creates a database in the private Postgres and returns its URL.
func (s *services) database(t *testing.T, name string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.postgres)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	u, err := url.Parse(s.postgres)
	require.NoError(t, err)
	u.Path = "/" + name
	return u.String()
}

// startTransfers sends so many transfers a second, each twice at once.
func (b *transferBank) startTransfers(t *testing.T, perSecond int) {
	ctx, stop := context.WithCancel(t.Context())
	b.stop = stop
	b.clients.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			i := b.asked.Add(1)
			for range 2 {
				b.clients.Go(func() { b.transfer(t.Context(), i) })
			}
		}
	})
	t.Cleanup(func() {
		stop()
		b.clients.Wait()
	})
}

func (b *transferBank) transfer(ctx context.Context, i int64) {
	ctx = httpidem.WithKey(ctx, fmt.Sprintf("transfer-%d", i))
	from := i%10 + 1
	body := fmt.Sprintf(`{"from":%d,"to":%d,"amount":1,"currency":"EUR","reference":"r-%d"}`, from, from%10+1, i)
	answer, err := b.post(ctx, body)
	if err != nil {
		answer = fmt.Sprintf("transfer %d: %v %s", i, err, answer)
		b.wrong.CompareAndSwap(nil, &answer)
		return
	}
	b.booked.Add(1)
}

func (b *transferBank) post(ctx context.Context, body string) (answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+b.addr+"/transfers", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := b.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusCreated {
		err = fmt.Errorf("status %d", res.StatusCode)
	}
	return string(text), err
}

func (b *transferBank) answered() int { return int(b.booked.Load()) }

// requireBookedOnce ends the transfers and requires that each was booked once.
func (b *transferBank) requireBookedOnce(t *testing.T) {
	t.Helper()
	b.stop()
	b.clients.Wait()
	if wrong := b.wrong.Load(); wrong != nil {
		require.Fail(t, "a transfer was not answered", *wrong)
	}
	conn, err := pgx.Connect(t.Context(), b.postgres)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var rows, booked, moved int64
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE refused IS NULL),
		coalesce((SELECT sum(abs(amount)) FROM entries), 0)::bigint / 2 FROM transfers`).Scan(&rows, &booked, &moved))
	asked := b.asked.Load()
	require.Equal(t, []int64{asked, asked, asked}, []int64{rows, booked, moved}, "rows, booked, cents moved")
	b.worker.stop(20 * time.Second)
}
