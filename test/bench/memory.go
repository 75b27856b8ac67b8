package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
)

// Memory: a consumer of 100 partitions that is far behind, in a process of its own. The figure is
// the largest resident size of that process.

const (
	memoryPartitions = 100
	memoryTime       = 15 * time.Second // of a consumer with a slow handler
	memoryWait       = 90 * time.Second // for the last event of a consumer with a quick handler
	slowEvent        = 100 * time.Millisecond
	wantedMemory     = 256 // MB
)

// memoryShape is a kind of consumer and of records.
type memoryShape struct {
	Name   string
	About  string
	Events int // in each partition
	Bytes  int // added to the payload of an event
	Lanes  int
	Slow   bool // On with Redis and a handler of slowEvent; else OnBatchTx
}

var memoryShapes = []memoryShape{
	{Name: "quick", About: "OnBatchTx, events of 230 bytes", Events: 10_000},
	{Name: "slow", About: "On, 16 lanes, handler of 100 ms, events of 230 bytes", Events: 10_000, Lanes: 16, Slow: true},
	{Name: "slow-large", About: "the same with events of 100 kB", Events: 40, Bytes: 100_000, Lanes: 16, Slow: true},
}

// memoryResult is the largest resident size of a consumer.
type memoryResult struct {
	Name  string  `json:"name"`
	About string  `json:"about"`
	Peak  float64 `json:"peak_mb"`
}

// memoryChild is the environment variable with the task of the process that is measured.
const memoryChild = "IDEM_BENCH_MEMORY"

// memoryTask is the task of the measured process.
type memoryTask struct {
	Shape memoryShape
	Lab   string // ID of the run
	Topic string
}

func (b *bench) memory(ctx context.Context) (list []memoryResult, err error) {
	topics := make(map[[2]int]string)
	for _, s := range memoryShapes {
		kind := [2]int{s.Events, s.Bytes}
		if topics[kind] == "" {
			topics[kind] = fmt.Sprintf("%s-memory-%d-%d", b.lab.id, s.Events, s.Bytes)
			if err := b.lab.memoryTopic(ctx, topics[kind], s); err != nil {
				return list, err
			}
		}
		if err := b.lab.reset(ctx, 0); err != nil {
			return list, err
		}
		peak, err := memoryOf(ctx, memoryTask{Shape: s, Lab: b.lab.id, Topic: topics[kind]})
		if err != nil {
			return list, fmt.Errorf("memory of %s: %w", s.Name, err)
		}
		logf("  %s: %.0f MB", s.Name, peak)
		list = append(list, memoryResult{Name: s.Name, About: s.About, Peak: peak})
	}
	return list, nil
}

// memoryOf runs a consumer in a process of its own and returns the largest resident size in MB.
func memoryOf(ctx context.Context, task memoryTask) (float64, error) {
	text, err := json.Marshal(task)
	if err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, memoryWait+30*time.Second)
	defer cancel()
	child := exec.CommandContext(ctx, self)
	child.Env = append(os.Environ(), memoryChild+"="+string(text))
	child.Stderr = os.Stderr
	out, err := child.Output()
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
}

// consumeForMemory is the process that is measured. The result is printed on standard output.
func consumeForMemory(ctx context.Context, text string) error {
	var task memoryTask
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return err
	}
	l, err := connectLab(ctx, task.Lab)
	if err != nil {
		return err
	}
	defer l.disconnect()
	var handled atomic.Int64
	wait := memoryTime
	if !task.Shape.Slow {
		wait = memoryWait
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	count := func(n int) {
		if handled.Add(int64(n)) == int64(memoryPartitions*task.Shape.Events) {
			cancel()
		}
	}
	x := &run{lab: l, row: &row{lanes: task.Shape.Lanes}, topic: &topic{name: task.Topic}}
	x.group = task.Topic + "-" + task.Shape.Name
	x.scope = x.group
	if err := consumeShape(ctx, x, task.Shape, count); err != nil {
		return err
	}
	if !task.Shape.Slow && handled.Load() < int64(memoryPartitions*task.Shape.Events) {
		return fmt.Errorf("%d events were handled", handled.Load())
	}
	peak, err := peakMemory()
	if err == nil {
		fmt.Println(peak)
		logf("  %d events in %s", handled.Load(), task.Shape.Name)
	}
	return err
}

func consumeShape(ctx context.Context, x *run, s memoryShape, count func(int)) error {
	r := idem.NewRouter()
	if s.Slow {
		idem.On(r, eventType, func(ctx context.Context, _ idem.Event[payment]) error {
			count(1)
			select {
			case <-time.After(slowEvent):
			case <-ctx.Done():
			}
			return nil
		})
		return consumeIdem(ctx, x, x.redisStore(), r)
	}
	idem.OnBatchTx(r, eventType,
		func(_ context.Context, _ pgx.Tx, events []idem.Event[payment]) error {
			count(len(events))
			return nil
		})
	return consumeIdem(ctx, x, x.postgres(), r)
}

// memoryTopic makes a topic with a backlog in each partition.
func (l *lab) memoryTopic(ctx context.Context, name string, s memoryShape) error {
	if err := l.createTopic(name, memoryPartitions); err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(l.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(20_000), kgo.ProducerLinger(20*time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	sp := spec{deliveries: memoryPartitions * s.Events, partitions: memoryPartitions, once: true, seed: 6}
	list, _ := sp.generate()
	results := newFirstError()
	for i := range list {
		list[i].Customer += strings.Repeat("x", s.Bytes)
		r, err := list[i].record(name)
		if err != nil {
			return err
		}
		client.Produce(ctx, r, func(_ *kgo.Record, err error) { results.add(err) })
		list[i] = delivery{}
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	return results.get()
}

// peakMemory returns the largest resident size of this process in MB.
func peakMemory() (float64, error) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kb * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no VmHWM")
}
