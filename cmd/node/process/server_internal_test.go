package process

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"ponor/rpc"
)

// A client that does not read its replies pins the memory of records only for
// seconds.
func TestAClientThatDoesNotReadIsClosedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan time.Time, 1)
		fetch := rpc.API{Key: 1, Max: 4, Raw: true, Handle: func(context.Context, *rpc.Request) rpc.Response {
			return rpc.Response{Buffers: net.Buffers{make([]byte, 1<<20)}, Release: func() { released <- time.Now() }}
		}}
		s, err := rpc.NewServer((&Node{meters: new(meters)}).serverConfig([]rpc.API{fetch}))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		client, server := net.Pipe()
		defer client.Close()
		begun := time.Now()
		go s.ServeConn(t.Context(), server)
		if _, err := client.Write([]byte{0, 0, 0, 10, 0, 1, 0, 0, 0, 0, 0, 1, 0xff, 0xff}); err != nil {
			t.Fatal(err)
		}
		if took := (<-released).Sub(begun); took > 13*time.Second {
			t.Errorf("records were pinned for %v", took)
		}
	})
}
