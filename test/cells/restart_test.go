package cells

import (
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// servers have the names of services.sh.
var servers = map[store]string{
	pg: "postgres", sqlPG: "postgres", sqlMaria: "mariadb", onRedis: "redis", onCluster: "redis_cluster",
}

// gathering restarts a server once for some cells, when all of them stand at their steps.
type gathering struct {
	t      testing.TB
	server string
	left   sync.WaitGroup // cells that do not stand yet
	done   chan struct{}
}

func gather(t testing.TB, server string, cells int) *gathering {
	g := &gathering{t: t, server: server, done: make(chan struct{})}
	g.left.Add(cells)
	return g
}

// restart waits for the cells, and restarts the server.
func (g *gathering) restart() {
	defer close(g.done)
	g.left.Wait()
	out, err := exec.CommandContext(g.t.Context(), "../services/services.sh", "restart", g.server).CombinedOutput()
	assert.NoError(g.t, err, "restart %s: %s", g.server, out)
}

// seat returns a function for one cell. The cell calls it with true at its step, and returns after
// the restart; or with false at its end, in case it failed before.
func (g *gathering) seat() func(stands bool) {
	once := sync.OnceFunc(g.left.Done)
	return func(stands bool) {
		once()
		if stands {
			<-g.done
		}
	}
}
