package s3test_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"ponor/internal/s3test"
	"ponor/internal/systest"
)

// cluster starts three ponor processes on a store of the server.
func cluster(t *testing.T, server *s3test.Server) *systest.Cluster {
	t.Helper()
	if os.Getenv("SYSTEST_BINARY") == "" {
		// The product's own go.mod builds it, not this module's.
		binary := filepath.Join(t.TempDir(), "ponor")
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/node")
		cmd.Dir = filepath.Join("..", "..")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build ponor: %v\n%s", err, out)
		}
		t.Setenv("SYSTEST_BINARY", binary)
	}
	return systest.Start(t, systest.Options{Store: server.Store("cluster")})
}

// Every process at once, twice, while producers go on: what was acknowledged is
// there, at its offset, once.
func TestKillingAllNodesOverS3(t *testing.T) {
	for name, faults := range map[string][]s3test.Fault{
		"healthy store": nil,
		"faulty store": {
			{Method: "PUT", Every: 10, ResetAfter: true},
			{Method: "PUT", Every: 17, Status: 409, Code: "ConditionalRequestConflict"},
			{Every: 23, Status: 503, Code: "SlowDown"},
			{Every: 29, Delay: 300 * time.Millisecond},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := s3test.Start(t)
			c := cluster(t, server)
			for _, f := range faults {
				server.Add(f)
			}
			h := systest.Produce(t, c, "killall", 6, 2)
			for range 2 {
				h.WaitAcked(200)
				for _, n := range c.Nodes {
					n.Kill()
				}
				for _, n := range c.Nodes {
					n.Start()
				}
			}
			h.WaitAcked(200)
			h.Stop()
			h.Check()
			t.Logf("%d records acknowledged, requests %v", h.Acked.Load(), server.Counts())
		})
	}
}
