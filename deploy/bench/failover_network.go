package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// network gives each node a network namespace of its own, all of them on one
// bridge with this process, so that a node can be cut off as if its cable were
// pulled: what is sent to it and by it is lost, and nobody is told. It needs
// Linux, root and iproute2. Directories are not behind it: a node that is cut off
// still writes to its store.
type network struct{}

// The names that a run uses; what an earlier one left behind is removed.
const (
	bridge  = "ponor-bench"
	subnet  = "10.213.77." // /24
	uplink  = "ponor-up"   // + place, on the bridge
	inside  = "ponor-in"   // + place, in the namespace
	nsName  = "ponor-bench-"
	gateway = subnet + "254"
)

var errNoNetwork = errors.New("cannot make a network to cut")

func ip(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// newNetwork makes the namespaces.
func newNetwork(ctx context.Context) (*network, error) {
	n := &network{}
	n.close()
	steps := []string{"link add " + bridge + " type bridge", "addr add " + gateway + "/24 dev " + bridge, "link set " + bridge + " up"}
	for i := range nodes {
		ns, up, in := fmt.Sprint(nsName, i), fmt.Sprint(uplink, i), fmt.Sprint(inside, i)
		steps = append(steps,
			"netns add "+ns,
			"link add "+up+" type veth peer name "+in+" netns "+ns,
			"link set "+up+" master "+bridge+" up",
			"-n "+ns+" link set lo up",
			"-n "+ns+" addr add "+n.host(i)+"/24 dev "+in,
			"-n "+ns+" link set "+in+" up")
	}
	for _, step := range steps {
		if err := ip(ctx, strings.Fields(step)...); err != nil {
			n.close()
			return nil, fmt.Errorf("%w: %w", errNoNetwork, err)
		}
	}
	return n, nil
}

// close removes everything, as far as it is there.
func (n *network) close() {
	ctx := context.Background()
	for i := range nodes {
		_ = ip(ctx, "link", "del", fmt.Sprint(uplink, i)) // and its other end
		_ = ip(ctx, "netns", "del", fmt.Sprint(nsName, i))
	}
	_ = ip(ctx, "link", "del", bridge)
}

// host is the address of the node at a place.
func (n *network) host(at int) string { return fmt.Sprint(subnet, at+1) }

// listen are the addresses of all nodes for one purpose.
func (n *network) listen(port int) (out []string) {
	for i := range nodes {
		out = append(out, fmt.Sprintf("%s:%d", n.host(i), port))
	}
	return out
}

// command runs a program as the node at a place.
func (n *network) command(at int, binary string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", fmt.Sprint(nsName, at), binary}, args...)...)
}

// cut cuts the node at a place off, or connects it again.
func (n *network) cut(ctx context.Context, at int, off bool) error {
	state := "up"
	if off {
		state = "down"
	}
	return ip(ctx, "link", "set", fmt.Sprint(uplink, at), state)
}
