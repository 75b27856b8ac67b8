package cells

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// servers have the names of services.sh.
var servers = map[store]string{
	pg: "postgres", sqlPG: "postgres", sqlMaria: "mariadb", onRedis: "redis", onCluster: "redis_cluster",
}

// gathering restarts a server once for some cells, when all of them stand at their steps.
type gathering struct {
	t      testing.TB
	server string
	cells  int
	limit  time.Duration // for the cells to stand
	left   chan struct{} // has one element for each cell that stands or has ended
	done   chan struct{}
}

const (
	// standLimit is more than a cell takes to begin, to stand, and to see its trap sprung.
	standLimit = 3 * stepLimit
	// restartLimit bounds the restart of a server.
	restartLimit = time.Minute
)

func gather(t testing.TB, server string, cells int) *gathering {
	return &gathering{
		t: t, server: server, cells: cells, limit: standLimit,
		left: make(chan struct{}, cells), done: make(chan struct{}),
	}
}

// restart waits for the cells, and restarts the server.
func (g *gathering) restart() {
	defer close(g.done)
	if err := g.wait(); err != nil {
		assert.NoError(g.t, err, "the server is not restarted")
		return
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), restartLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "../services/services.sh", "restart", g.server).CombinedOutput()
	assert.NoError(g.t, err, "restart %s: %s", g.server, out)
}

// wait waits until all cells stand at their steps, or have ended.
func (g *gathering) wait() error {
	limit := time.After(g.limit)
	for n := range g.cells {
		select {
		case <-g.left:
		case <-limit:
			return fmt.Errorf("after %s, %d of %d cells stand at their steps", g.limit, n, g.cells)
		}
	}
	return nil
}

// seat returns a function for one cell. The cell calls it with true at its step, and returns after
// the restart; or with false at its end, in case it failed before.
func (g *gathering) seat() func(stands bool) {
	once := sync.OnceFunc(func() { g.left <- struct{}{} })
	return func(stands bool) {
		once()
		if stands {
			<-g.done // restart ends in any case
		}
	}
}

// A restart does not wait for ever for a cell that does not come.
func TestGathering(t *testing.T) {
	g := gather(t, "none", 2)
	g.limit = time.Millisecond
	seat := g.seat()
	seat(false)
	seat(false) // counts once
	require.ErrorContains(t, g.wait(), "1 of 2 cells")
	g.seat()(false)
	g.seat()(false)
	require.NoError(t, g.wait())
}
