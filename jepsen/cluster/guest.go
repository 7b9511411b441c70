package cluster

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// newGuest lays out a node that is a broker only and none of Nodes.
func newGuest(cfg Config, like Link, port int) *node {
	like.Listen, like.Advertise = fmt.Sprintf("127.0.0.1:%d", port), ""
	like.ControllerListen, like.ControllerAdvert, like.Store = "", "", cfg.Store
	cfg.Rewire, cfg.Extra = nil, append([]string{"--roles", "broker"}, cfg.Extra...)
	return newNode(cfg, int32(cfg.Nodes+1), like)
}

// Join starts one more node, a broker only and none of Nodes, always the same. It
// returns its id, and does not wait until it serves.
func (c *Processes) Join(context.Context) (int32, error) {
	if c.guest == nil {
		return 0, ErrCannot
	}
	_, err := c.guest.start(c.cfg.Binary, &c.life, func(int32, int) {})
	return c.guest.id, err
}

// Leave ends it, in order or at once, and says what is seen of it.
func (c *Processes) Leave(ctx context.Context, inOrder bool) (string, error) {
	if c.guest == nil || c.guest.down() {
		return "", errors.New("nobody joined, or it is gone")
	}
	s := syscall.SIGKILL
	if inOrder {
		s = syscall.SIGTERM
	}
	err := c.guest.end(ctx, s)
	return c.guest.state(), err
}
