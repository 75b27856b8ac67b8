package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// built are the names of the programs.
var built = []string{"payments", "orderstatus", "notifier", "idem"}

// build builds the programs of the chain into dir.
func build(ctx context.Context, dir string) error {
	const module = "github.com/idem-go/idem/"
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+"/",
		module+"examples/payments", module+"examples/orderstatus", module+"examples/notifier",
		module+"cmd/idem")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// program is a process of the chain that is started again after a kill. Each run logs to
// <dir>/<name>.<run>.log and prints to a file that ends in .out. program is used by one goroutine.
type program struct {
	name, path, dir string
	args            []string
	env             []string // in addition to the environment of this process

	runs  int // started runs
	kills int // runs ended by SIGKILL
	cmd   *exec.Cmd
	ended chan error // of the current run
}

func (p *program) file(run int, kind string) string {
	return filepath.Join(p.dir, fmt.Sprintf("%s.%d.%s", p.name, run, kind))
}

// start starts another run.
func (p *program) start() error {
	p.runs++
	out, err := os.Create(p.file(p.runs, "out"))
	if err != nil {
		return err
	}
	defer out.Close() // the process has its own copy
	log, err := os.Create(p.file(p.runs, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(p.path, p.args...) //nolint:noctx // kill and stop end it, and so does child
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = out, log, child()
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return err
	}
	ended := make(chan error, 1)
	p.ended = ended
	// ends with the process, which kill and stop wait for
	go func(cmd *exec.Cmd) { ended <- cmd.Wait() }(p.cmd)
	return nil
}

// failure returns an error if the program has ended by itself.
func (p *program) failure() error {
	if p.cmd == nil {
		return nil
	}
	select {
	case err := <-p.ended:
		p.cmd = nil
		return fmt.Errorf("%s ended by itself: %w\n%s", p.name, errors.Join(err, errEnded),
			p.tail())
	default:
		return nil
	}
}

var errEnded = errors.New("the chain needs it")

// kill sends SIGKILL, waits, and reports whether the signal ended the program.
func (p *program) kill() bool {
	if p.cmd == nil {
		return false
	}
	cmd := p.cmd
	p.cmd = nil
	_ = cmd.Process.Kill() // may have ended already
	err := <-p.ended
	killed := err != nil && cmd.ProcessState.ExitCode() < 0 // by a signal
	if killed {
		p.kills++
	}
	return killed
}

// stop stops the program by SIGTERM, as a deployment does.
func (p *program) stop(limit time.Duration) error {
	if p.cmd == nil {
		return fmt.Errorf("%s does not run", p.name)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case err := <-p.ended:
		p.cmd = nil
		if err != nil {
			return fmt.Errorf("%s did not end well: %w\n%s", p.name, err, p.tail())
		}
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s does not end within %v of SIGTERM\n%s", p.name, limit, p.tail())
	}
}

// tail returns the end of the log of the last run.
func (p *program) tail() string {
	text, err := os.ReadFile(p.file(p.runs, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

var count = regexp.MustCompile(`(?:stats|counts)\.(\w+)=(\d+)`)

// counts adds up the last counts in the logs of all runs from the given one on. A killed run has
// logged counts shortly before.
func (p *program) counts(from int) (map[string]int, error) {
	total := make(map[string]int)
	for run := max(from, 1); run <= p.runs; run++ {
		f, err := os.Open(p.file(run, "log"))
		if err != nil {
			return nil, err
		}
		last := ""
		in := bufio.NewScanner(f)
		for in.Scan() {
			if strings.Contains(in.Text(), "stats.") || strings.Contains(in.Text(), "counts.") {
				last = in.Text()
			}
		}
		_ = f.Close()
		if err := in.Err(); err != nil {
			return nil, err
		}
		for _, m := range count.FindAllStringSubmatch(last, -1) {
			n, _ := strconv.Atoi(m[2]) // digits
			total[m[1]] += n
		}
	}
	return total, nil
}
