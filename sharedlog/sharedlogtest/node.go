package sharedlogtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"ponor/metadata"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
)

// Node is one incarnation of a broker with its store, running.
type Node struct {
	*sharedlog.Store
	Incarnation metadata.Incarnation
	Meta        *Meta
	cancel      context.CancelFunc
	done        chan struct{}
	err         error
}

// Start registers a broker and runs a store for it. The store stops with the
// test. tune may change the config.
func Start(tb testing.TB, c *Cluster, b objstore.Bucket, broker metadata.BrokerID, tune func(*sharedlog.Config)) *Node {
	tb.Helper()
	n, err := StartAs(c, b, c.Register(broker), tune)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(n.Crash)
	return n
}

// StartAs runs a store for an incarnation.
func StartAs(c *Cluster, b objstore.Bucket, inc metadata.Incarnation, tune func(*sharedlog.Config)) (*Node, error) {
	n := &Node{Incarnation: inc, Meta: c.Meta(inc), done: make(chan struct{})}
	cfg := sharedlog.Config{
		Bucket: b, Meta: n.Meta, Incarnation: inc,
		CacheBytes: 16 << 20, ReadCacheBytes: 8 << 20, Linger: 5 * time.Millisecond,
		RetryMin: time.Millisecond, RetryMax: 50 * time.Millisecond, SweepEvery: -1,
	}
	if tune != nil {
		tune(&cfg)
	}
	s, err := sharedlog.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("start node %s: %w", inc, err)
	}
	n.Store = s
	var ctx context.Context
	ctx, n.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(n.done)
		n.err = s.Run(ctx)
	}()
	return n, nil
}

// Crash ends the store as a killed process would: nothing more is written.
func (n *Node) Crash() {
	n.cancel()
	<-n.done
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.Store.Close(ctx)
}
