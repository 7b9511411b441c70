package controller_test

import (
	"context"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"ponor/controller/controllerpb"
	"ponor/metadata/metadatapb"
	"ponor/rpc"
)

// FuzzFrames sends a voter arbitrary bytes where other nodes speak to it, as
// they come and as the body of a call: it does not panic, and goes on serving.
func FuzzFrames(f *testing.F) {
	for i, m := range []proto.Message{
		&controllerpb.HelloRequest{}, &controllerpb.SubmitRequest{Commands: []*metadatapb.Command{noop()}}, &controllerpb.BarrierRequest{},
		&controllerpb.FollowRequest{}, &controllerpb.SnapshotRequest{}, &controllerpb.RegisterRequest{Registration: &metadatapb.RegisterBroker{Broker: 7}},
		&controllerpb.HeartbeatRequest{}, &controllerpb.AdminRequest{}, &controllerpb.StatusRequest{},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(int8(i), b)
		f.Add(int8(i), append(b, 0x08, 0x96, 0x01))
	}
	f.Add(int8(-1), []byte("\xffPONORR\x02 and no greeting"))
	f.Add(int8(-1), []byte("\xff"))
	f.Add(int8(-1), []byte("GET / HTTP/1.1\r\n\r\n"))
	c := newCluster(f)
	c.voters(1)
	n := c.leader()
	dial := c.net.dialer("stranger")
	const quorum = 9 // changes who votes: a voter that was removed need not answer
	f.Fuzz(func(t *testing.T, key int8, body []byte) {
		if key == quorum {
			return
		}
		conn, err := dial(t.Context(), "tcp", "n1:9093")
		if err != nil {
			t.Fatal(err)
		}
		if key >= 0 { // in a frame: length, key, version, correlation, no client id
			frame := binary.BigEndian.AppendUint16(nil, uint16(rpc.InternalKey+int16(key)))
			frame = append(frame, 0, 0, 0, 0, 0, 1, 0xff, 0xff)
			frame = append(frame, body...)
			body = append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
		}
		_ = conn.SetDeadline(time.Now().Add(50 * time.Millisecond)) // long polls wait
		_, _ = conn.Write(body)
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
		if log := n.log.String(); strings.Contains(log, "panic") {
			t.Fatal(log)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if _, err := n.Barrier(ctx); err != nil {
			t.Fatalf("the voter does not answer any more: %v", err)
		}
	})
}
