package chaos

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/idem-go/idem/internal/testenv"
)

// registryRole makes the test binary a schema registry, so that the test can kill and freeze it.
const registryRole = "registry"

// schemas is the number of schemas in the registry, with the IDs from 1 on. Every perSchema events
// the producer uses the next one, which no worker has cached.
const schemas, perSchema = 1000, 30

// serveRegistry runs the fake registry of franz-go with its schemas at an address.
func serveRegistry(addr string) error {
	fake := srfake.NewRegistry()
	for id := 1; id <= schemas; id++ {
		fake.SeedSchema("payments-value", id, id, sr.Schema{
			Type:   sr.TypeJSON,
			Schema: fmt.Sprintf(`{"title": "payment.completed", "type": "object", "required": ["payment_id"], "$comment": "version %d"}`, id),
		})
	}
	server := &http.Server{Addr: addr, Handler: fake.Handler(), ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}

// schemaPayment is a payment in Confluent's wire format.
func schemaPayment(d *delivery) []byte {
	id := 1 + d.order/perSchema%schemas
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), payment(d)...) //nolint:gosec // at most schemas
}

// registry is a schema registry of the test's own.
type registry struct {
	t    testing.TB
	addr string
	now  *proc
}

func newRegistry(t testing.TB) *registry {
	t.Helper()
	r := &registry{t: t, addr: testenv.FreeAddr(t)}
	r.start()
	return r
}

func (r *registry) url() string { return "http://" + r.addr }

// start starts the registry, and waits until it answers.
func (r *registry) start() {
	r.t.Helper()
	r.now = start(r.t, registryRole, os.Args[0], []string{roleEnv + "=" + registryRole, "CHAOS_REGISTRY=" + r.addr})
	require.Eventually(r.t, func() bool {
		answer, err := http.Get(r.url() + "/schemas/ids/1")
		if err != nil {
			return false
		}
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	}, 20*time.Second, 20*time.Millisecond, "the registry does not start")
}

// during takes the registry away while f runs.
func (r *registry) during(how fault, f func()) {
	r.t.Helper()
	if how == crash {
		r.now.kill()
		f()
		r.start()
		return
	}
	require.NoError(r.t, r.now.cmd.Process.Signal(syscall.SIGSTOP))
	f()
	require.NoError(r.t, r.now.cmd.Process.Signal(syscall.SIGCONT))
}
