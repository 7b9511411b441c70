package main

import (
	"net"
	"testing"
)

// Ports of nodes are none that the system gives to outgoing connections.
func TestFreePorts(t *testing.T) {
	for range 20 {
		if first, err := freePorts(t.Context()); err != nil || first < firstPort || first+1 >= lastPort {
			t.Errorf("ports %d and the next: %v", first, err)
		}
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if free(t.Context(), l.Addr().(*net.TCPAddr).Port) {
		t.Errorf("%v is free, and somebody listens there", l.Addr())
	}
}
