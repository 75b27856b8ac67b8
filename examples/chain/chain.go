package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// chain is a run: the places at the services, the programs, and the clients.
type chain struct {
	*place
	*screen
	dir      string // of programs and logs
	programs []*program
	provider string // URL
	clients  *clients
	begun    bool   // the clients have begun
	plan     []kill // kills to come
	// partitions of each killed notifier: each has at most one notification in flight
	lanes []int
	all   int // number of planned kills
}

// kill kills a program when that many payments are answered.
type kill struct {
	at      int
	program *program
}

// quietTime bounds the time until all queues are empty. The wait for a killed relay is included.
const quietTime = time.Minute

var (
	errTimeUp   = errors.New("time is up")
	errNotQuiet = fmt.Errorf("%w: the queues are not empty after %v", errTimeUp, quietTime)
)

// play runs the chain and measures the result. An error means that the chain could not run.
func play(ctx context.Context, o options, out *screen) (s *summary, err error) {
	runtime.LockOSThread() // children die with the thread that started them
	defer runtime.UnlockOSThread()
	c := &chain{screen: out}
	if c.dir, err = os.MkdirTemp("", "idem-chain-"); err != nil {
		return nil, err
	}
	defer func() { c.tidy(err != nil || o.keep || len(s.problems()) > 0) }()
	c.say("seed %d; building payments, orderstatus, notifier and idem", o.seed)
	if err := build(ctx, c.dir); err != nil {
		return nil, err
	}
	c.begin = time.Now() // the time of the compiler does not count
	limit := 2*time.Minute + o.over + time.Duration(o.payments)*10*time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeUp)
	defer cancel()
	c.place, err = openPlace(ctx, o)
	defer func() {
		var notified []string
		if s != nil {
			notified = s.events
		}
		if e := c.place.close(notified); e != nil {
			c.say("clean-up is incomplete: %v", e)
		}
	}()
	if err != nil {
		return nil, err
	}
	defer c.killAll()
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	return c.run(ctx)
}

// tidy removes the programs, and the logs unless keep is set. The directory is a temporary one.
func (c *chain) tidy(keep bool) {
	logs, _ := filepath.Glob(filepath.Join(c.dir, "*.log")) // the pattern is valid
	if !keep || len(logs) == 0 {
		_ = os.RemoveAll(c.dir)
		return
	}
	for _, name := range built {
		_ = os.Remove(filepath.Join(c.dir, name)) // they are large
	}
	c.say("logs of all processes: %s", c.dir)
}

// run starts the programs, lets the clients pay, and measures.
func (c *chain) run(ctx context.Context) (*summary, error) {
	begin := time.Now()
	if err := c.startAll(ctx); err != nil {
		return nil, err
	}
	s := &summary{seed: c.o.seed}
	err := c.flow(ctx)
	if err == nil {
		c.say("all payments are answered; waiting until all queues are empty")
		err = c.settle(ctx)
	}
	if s.hung = err; err != nil && !errors.Is(err, errTimeUp) {
		return nil, err
	}
	if err := c.measure(s); err != nil {
		return nil, err
	}
	if s.hung == nil {
		if err := c.replay(ctx, s); err != nil {
			return nil, err
		}
	}
	s.took = time.Since(begin)
	return s, nil
}

// prepare creates tables and orders, and describes the processes.
func (c *chain) prepare(ctx context.Context) error {
	paymentDB, err := c.database(c.paymentSchema)
	if err != nil {
		return err
	}
	orderDB, err := c.database(c.orderSchema)
	if err != nil {
		return err
	}
	api, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	provider, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	c.provider = "http://" + provider
	brokers := strings.Join(c.o.brokers, ",")
	add := func(name, path string, args ...string) *program {
		p := &program{
			name: name, path: filepath.Join(c.dir, path), dir: c.dir, args: args,
			env: metricsPort(len(c.programs)),
		}
		c.programs = append(c.programs, p)
		return p
	}
	add("provider", "payments", "-fake-provider", provider)
	add("payments", "payments", "-listen", api, "-postgres", paymentDB, "-provider", c.provider,
		"-brokers", brokers, "-topic", c.payments)
	relay := add("relay", "idem", "relay", "--brokers", brokers)
	// not an argument, which every user of the host can see
	relay.env = append(relay.env, "IDEM_OUTBOX="+paymentDB)
	for _, name := range []string{"orders-1", "orders-2"} {
		add(name, "orderstatus", "-postgres", orderDB, "-migrate",
			"-seed", strconv.Itoa(c.o.payments), "-brokers", brokers, "-audit",
			"-topic", c.payments, "-emit", c.orders, "-group", c.orderGroup,
			"-instance-id", name, "-stats", "200ms")
	}
	for _, name := range []string{"notifier-1", "notifier-2"} {
		add(name, "notifier", "-brokers", brokers, "-topic", c.orders, "-group", c.notifierGroup,
			"-store", c.o.redis, "-sender", "log",
			"-lease", "2s", "-retention", "1h", "-instance-id", name, "-stats", "200ms")
	}
	c.clients = &clients{
		url: "http://" + api, account: c.name, payments: c.o.payments, all: c.o.concurrency,
		over: c.o.over, hurry: c.o.hurry, seed: c.o.seed,
	}
	c.planKills()
	return nil
}

// metricsPort gives each process its own port for Prometheus, from $OTEL_EXPORTER_PROMETHEUS_PORT
// on, or 9464. The port is open only if OTEL_METRICS_EXPORTER asks for Prometheus.
func metricsPort(process int) []string {
	const name = "OTEL_EXPORTER_PROMETHEUS_PORT"
	first, err := strconv.Atoi(os.Getenv(name))
	if err != nil || first <= 0 {
		first = 9464
	}
	return []string{name + "=" + strconv.Itoa(first+process)}
}

// planKills plans one kill of every process within the first nine tenths of the payments. The
// provider is not ours and is not killed.
func (c *chain) planKills() {
	if !c.o.kill {
		return
	}
	rnd := rand.New(rand.NewPCG(c.o.seed, 0))
	for _, p := range c.programs[1:] {
		c.plan = append(c.plan, kill{c.o.payments/20 + rnd.IntN(c.o.payments*17/20), p})
	}
	slices.SortFunc(c.plan, func(a, b kill) int { return a.at - b.at })
	c.all = len(c.plan)
}

// startAll starts all programs and waits until all work.
func (c *chain) startAll(ctx context.Context) error {
	for _, p := range c.programs {
		if p.name == "relay" { // payments creates its tables
			if err := c.until(ctx, c.serves(c.clients.url+"/healthz")); err != nil {
				return err
			}
		}
		if err := p.start(); err != nil {
			return err
		}
	}
	if err := c.until(ctx, c.joined); err != nil {
		return err
	}
	c.say("%d processes run; %d payments begin, over %v", len(c.programs), c.o.payments, c.o.over)
	return nil
}

func (c *chain) serves(url string) condition {
	return func(ctx context.Context) (bool, error) {
		status, _, err := get(ctx, url)
		// an error means that the server does not listen yet
		return err == nil && status == http.StatusOK, nil
	}
}

// flow lets the clients pay, and kills programs meanwhile.
func (c *chain) flow(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	c.begun = true
	paid := make(chan struct{})
	go func() {
		defer close(paid)
		c.clients.run(ctx)
	}()
	err := c.until(ctx, func(ctx context.Context) (bool, error) {
		for len(c.plan) > 0 && int(c.clients.answered.Load()) >= c.plan[0].at {
			if err := c.kill(ctx, c.plan[0].program); err != nil {
				return false, err
			}
			c.plan = c.plan[1:]
		}
		select {
		case <-paid:
			return true, nil
		default:
			return false, nil
		}
	})
	cancel(err)
	<-paid
	return err
}

// kill kills and restarts a program.
func (c *chain) kill(ctx context.Context, p *program) error {
	lanes := 0
	if strings.HasPrefix(p.name, "notifier") {
		have, err := c.assigned(ctx, c.notifierGroup, c.orders)
		if err != nil && !passing(err) {
			return err
		}
		if lanes = have[p.name]; have == nil {
			lanes = partitions // unknown at this moment
		}
		c.lanes = append(c.lanes, lanes)
	}
	answered := c.clients.answered.Load()
	if !p.kill() {
		return fmt.Errorf("%s had ended before it was killed\n%s", p.name, p.tail())
	}
	c.say("kill -9 %s at payment %d; started again", p.name, answered)
	return p.start()
}

func (c *chain) killAll() {
	for _, p := range c.programs {
		p.kill()
	}
}
