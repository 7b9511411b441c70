package process

import (
	"errors"
	"fmt"
	"io"
	"runtime"

	"ponor/internal/metrics"
	"ponor/metadata"
	"ponor/partition"
	"ponor/sharedlog"
)

// life is what one incarnation works with.
type life struct {
	inc    metadata.Incarnation
	shared *sharedlog.Store
	set    *partition.Set
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

// show writes everything to a page.
func (n *Node) show(p *metrics.Page) {
	p.Set(metrics.BuildInfo, 1, n.cfg.Version, runtime.Version())
	p.Flag(metrics.Ready, n.Unready() == nil)
	n.store.Show(p)
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
	if err := now.shared.Trouble(); err != nil {
		return fmt.Errorf("the store does not take writes: %w", err)
	}
	return nil
}
