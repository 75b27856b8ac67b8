package main

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// machine has the properties of the machine and the servers on which the figures depend.
type machine struct {
	cpu, kernel, goVersion, postgres, redis, kafka string
	cores                                          int
	fsync                                          time.Duration // median
	commit                                         time.Duration // median, of an empty change
}

func (l *lab) machine(ctx context.Context) (m machine, err error) {
	m = machine{
		cpu: cpuModel(), kernel: kernel(), cores: runtime.NumCPU(), goVersion: runtime.Version(),
	}
	if err := l.pool.QueryRow(ctx, "SHOW server_version").Scan(&m.postgres); err != nil {
		return m, err
	}
	info, err := l.redis.Info(ctx, "server").Result()
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
			m.redis = strings.TrimSpace(v)
		}
	}
	if m.kafka, err = l.kafkaVersion(ctx); err != nil {
		return m, err
	}
	if m.fsync, err = fsyncTime(); err != nil {
		return m, err
	}
	m.commit, err = l.commitTime(ctx)
	return m, err
}

// kernel returns the release of Linux, or the name of another system.
func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return "Linux " + strings.TrimSpace(string(release))
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, v, ok := strings.Cut(lines.Text(), ":"); ok &&
			strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

// kafkaVersion guesses the version by the requests that the broker understands, because no API
// returns the release.
func (l *lab) kafkaVersion(ctx context.Context) (string, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(l.brokers...))
	if err != nil {
		return "", err
	}
	defer client.Close()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "bench", "1"
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return "", err
	}
	return kversion.FromApiVersionsResponse(resp).VersionGuess(), nil
}

const syncs = 200

// fsyncTime returns the time that the disk of the working directory takes to write 8 kB durably. A
// commit waits for such a write.
func fsyncTime() (time.Duration, error) {
	dir := os.Getenv("IDEM_SERVICES_DIR")
	if dir == "" {
		dir = "."
	}
	f, err := os.Create(filepath.Join(dir, ".fsync-probe"))
	if err != nil {
		return 0, err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	page := make([]byte, 8192)
	took := make([]float64, syncs)
	for i := range took {
		began := time.Now()
		if _, err := f.WriteAt(page, 0); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took[i] = time.Since(began).Seconds()
	}
	return time.Duration(median(took) * float64(time.Second)), nil
}

// commitTime returns the time that Postgres takes for the smallest change.
func (l *lab) commitTime(ctx context.Context) (time.Duration, error) {
	if err := l.reset(ctx, syncs); err != nil {
		return 0, err
	}
	took := make([]float64, syncs)
	for i := range took {
		began := time.Now()
		if _, err := l.pool.Exec(ctx, payOrder, i+1); err != nil {
			return 0, err
		}
		took[i] = time.Since(began).Seconds()
	}
	return time.Duration(median(took) * float64(time.Second)), nil
}
