package process

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"syscall"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/broker"
	"ponor/coordinator"
	"ponor/internal/metrics"
	"ponor/metadata"
	"ponor/partition"
	"ponor/rpc"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/counted"
)

// meters are everything of a node that counts for longer than an incarnation.
type meters struct {
	store         *counted.Bucket // the node's store, counted
	logs          sharedlog.Metrics
	partitions    partition.Metrics
	groups        coordinator.Metrics
	requests      requests
	registrations metrics.Counter

	mu     sync.Mutex // guards what follows: parts that come while the node starts
	api    *broker.Broker
	server *rpc.Server
}

// serving notes the parts that answer clients.
func (m *meters) serving(api *broker.Broker, server *rpc.Server) {
	m.mu.Lock()
	m.api, m.server = api, server
	m.mu.Unlock()
}

// life is what one incarnation works with.
type life struct {
	inc    metadata.Incarnation
	shared *sharedlog.Store
	set    *partition.Set
}

// requests counts what clients ask, by API. Keys beyond Kafka's share the last
// row.
type requests [128]struct {
	times             metrics.Durations // their number is that of requests
	queued            metrics.Counter   // nanoseconds
	received, written metrics.Counter   // bytes
}

func (r *requests) row(key int16) int {
	if key < 0 || int(key) >= len(r) {
		return len(r) - 1
	}
	return int(key)
}

// served is for rpc.ServerConfig.OnReply.
func (r *requests) served(s rpc.Served) {
	c := &r[r.row(s.Key)]
	c.times.Observe(s.Queued + s.Handled + s.Written)
	c.queued.Add(int64(s.Queued))
	c.received.Add(int64(s.RequestBytes))
	c.written.Add(int64(s.ResponseBytes))
}

// show writes every API that is served, at 0 too, but times only of those that
// were used.
func (r *requests) show(p *metrics.Page, apis []rpc.API) {
	shown := map[int]bool{}
	for _, a := range apis {
		i := r.row(a.Key)
		if shown[i] {
			continue
		}
		shown[i] = true
		c, name := &r[i], "Operator"
		if i < len(r)-1 {
			name = kmsg.NameForKey(a.Key)
		}
		n := c.times.Count()
		p.Set(metrics.Requests, float64(n), name)
		p.Set(metrics.RequestQueueSeconds, float64(c.queued.Count())/1e9, name)
		p.Count(metrics.RequestBytes, &c.received, name)
		p.Count(metrics.ResponseBytes, &c.written, name)
		if n > 0 {
			p.Durations(metrics.RequestSeconds, &c.times, name)
		}
	}
}

// WriteMetrics writes this node's numbers in Prometheus' text format.
func (n *Node) WriteMetrics(w io.Writer) error {
	p := new(metrics.Page)
	n.show(p)
	if _, err := p.WriteTo(w); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// show writes everything to a page. Between incarnations there is nothing to
// say of the one that ended but what was counted.
func (n *Node) show(p *metrics.Page) {
	m := n.meters
	p.Set(metrics.BuildInfo, 1, n.cfg.Version, runtime.Version())
	p.Flag(metrics.Ready, n.Unready() == nil)
	p.Count(metrics.Registrations, &m.registrations)
	m.partitions.Show(p)
	m.groups.Show(p)
	m.logs.Show(p)
	m.store.Show(p)
	if now := n.now.Load(); now != nil {
		now.set.Show(p)
		now.shared.Show(p)
	}
	m.mu.Lock()
	api, server := m.api, m.server
	m.mu.Unlock()
	if server != nil {
		api.Show(p)
		m.requests.show(p, server.APIs())
		s := server.Stats()
		p.Set(metrics.Connections, float64(s.Open))
		p.Set(metrics.ConnectionsOpened, float64(s.Opened))
		p.Set(metrics.ConnectionsRefused, float64(s.Refused))
		p.Set(metrics.Throttled, float64(s.Throttled))
		p.Set(metrics.RequestsInFlight, float64(s.InFlight))
		p.Set(metrics.BudgetUsed, float64(s.MemoryUsed), "requests")
		p.Set(metrics.BudgetLimit, float64(s.MemoryBudget), "requests")
	}
	n.ctl.Show(p)
	metrics.ShowProcess(p)
}

// troubleText is trouble of the store in few words, without the name of the object,
// where the reason alone says it all.
func troubleText(err error) string {
	var errno syscall.Errno
	switch {
	case errors.Is(err, objstore.ErrFull) && errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, objstore.ErrFull):
		return objstore.ErrFull.Error()
	}
	return err.Error()
}

// Unready is why clients should go elsewhere: this node is starting or stopping,
// its registration ended, or its store does not take writes. nil if it is ready.
func (n *Node) Unready() error {
	select {
	case <-n.draining:
		return errors.New("the node is stopping")
	default:
	}
	now := n.now.Load()
	if now == nil {
		return errors.New("the broker is not registered at the moment")
	}
	select {
	case <-now.shared.Fenced():
		return fmt.Errorf("incarnation %s is fenced: %w", now.inc, now.shared.FencedErr())
	default:
	}
	if _, err := now.shared.Trouble(); err != nil {
		return fmt.Errorf("the store does not take writes: %w", err)
	}
	return nil
}
