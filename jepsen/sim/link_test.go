package sim_test

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ponor/jepsen/sim"
)

// connect makes a connection between two hosts.
func connect(t *testing.T, n *sim.Network) (client, server net.Conn) {
	t.Helper()
	a, b := sim.NewLife("a"), sim.NewLife("b")
	l, err := n.Listen(b, "b:1")
	if err != nil {
		t.Fatal(err)
	}
	if client, err = n.Dialer(a)(t.Context(), "tcp", "b:1"); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return client, server
}

func TestAStoppedLinkLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := sim.NewNetwork(1, time.Millisecond)
		client, server := connect(t, n)
		unblock := n.Block([]string{"a"}, []string{"b"})
		begin := time.Now()
		for _, s := range []string{"one ", "two ", "three"} {
			if _, err := io.WriteString(client, s); err != nil {
				t.Fatal(err)
			}
		}
		client.Close()
		time.AfterFunc(time.Minute, unblock)
		got, err := io.ReadAll(server)
		if err != nil || string(got) != "one two three" {
			t.Fatalf("read %q, %v", got, err)
		}
		if d := time.Since(begin); d < time.Minute {
			t.Fatalf("bytes crossed a stopped link after %v", d)
		}
	})
}

func TestTheDeadRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := sim.NewNetwork(1, time.Millisecond)
		dial := n.Dialer(sim.NewLife("a"))
		if _, err := dial(t.Context(), "tcp", "b:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial to nobody: %v", err)
		}
		b := sim.NewLife("b")
		if _, err := n.Listen(b, "b:1"); err != nil {
			t.Fatal(err)
		}
		b.Die()
		if _, err := dial(t.Context(), "tcp", "b:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial to the dead: %v", err)
		}
		n.Block([]string{"b"}, []string{"a"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := dial(ctx, "tcp", "b:1"); !errors.Is(err, syscall.ETIMEDOUT) {
			t.Fatalf("dial over a link that stopped one way: %v", err)
		}
	})
}

func TestAResetTellsBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := sim.NewNetwork(1, time.Millisecond)
		client, server := connect(t, n)
		if _, err := io.WriteString(client, "lost"); err != nil {
			t.Fatal(err)
		}
		n.Reset("a", "b")
		for side, c := range map[string]net.Conn{"client": client, "server": server} {
			if _, err := c.Read(make([]byte, 4)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s reads %v", side, err)
			}
		}
	})
}
