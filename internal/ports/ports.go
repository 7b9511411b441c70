// Package ports finds TCP ports on 127.0.0.1 for processes that are started, and
// started again.
package ports

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports of nodes are below those that systems give to outgoing connections: one of
// these would take a port between its choice and the node's start, or while the node
// is down.
const first, last = 20000, 30000

// Row finds n ports in a row that nobody listens on. Nobody is given them until they
// are released, which may be done twice.
func Row(ctx context.Context, n int) (row []int, release func(), err error) {
	for range 100 * n {
		begin := first + rand.IntN(last-first-n+1)
		if release, err = listen(ctx, begin, n); err == nil {
			for i := range n {
				row = append(row, begin+i)
			}
			return row, release, nil
		}
	}
	return nil, nil, fmt.Errorf("find %d free ports in a row: %w", n, err)
}

// listen takes all of a row, or none.
func listen(ctx context.Context, begin, n int) (release func(), err error) {
	var held []net.Listener
	release = func() {
		for _, l := range held {
			_ = l.Close()
		}
	}
	for i := range n {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", begin+i))
		if err != nil {
			release()
			return nil, err //nolint:wrapcheck // names the address
		}
		held = append(held, l)
	}
	return release, nil
}
