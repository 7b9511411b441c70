package systest_test

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/internal/systest"
)

// resident is a process's resident memory in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

func TestIdleAndNeverReadingConnectionsCostLittle(t *testing.T) {
	idle := 10_000
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil || lim.Cur < uint64(idle)+1000 {
		t.Skipf("needs %d open files, the limit is %d", idle+1000, lim.Cur)
	}
	c := systest.Start(t, systest.Options{Nodes: 1})
	cl := c.Client(kgo.DefaultProduceTopic("served"))
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, -1, nil, "served"); err != nil {
		t.Fatal(err)
	}
	produce := func() {
		t.Helper()
		for range 100 {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Value: make([]byte, 1000)}).FirstErr(); err != nil {
				t.Fatalf("produce: %v", err)
			}
		}
	}
	produce()
	before := resident(t, c.Nodes[0].Pid())
	var d net.Dialer
	for range idle { // each has said hello and waits
		conn, err := d.DialContext(t.Context(), "tcp", c.Nodes[0].Address)
		if err != nil {
			t.Fatalf("connect: %v", err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := conn.Write(apiVersionsFrame()); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 64)); err != nil {
			t.Fatalf("answer to ApiVersions: %v", err)
		}
	}
	for range 100 { // these ask and ask and never read
		conn, err := d.DialContext(t.Context(), "tcp", c.Nodes[0].Address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		tc := conn.(*net.TCPConn)
		_ = tc.SetReadBuffer(4096)
		go func() {
			for {
				if _, err := tc.Write(apiVersionsFrame()); err != nil {
					return
				}
			}
		}()
	}
	produce()
	after := resident(t, c.Nodes[0].Pid())
	t.Logf("resident memory grew by %d MB", (after-before)>>20)
	if after-before > 200<<20 {
		t.Errorf("resident memory grew by %d MB, more than 200", (after-before)>>20)
	}
}

// apiVersionsFrame is a request: ApiVersions v0, correlation 1, no client id.
func apiVersionsFrame() []byte {
	b := binary.BigEndian.AppendUint32(nil, 10)
	b = binary.BigEndian.AppendUint16(b, 18)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint32(b, 1)
	return binary.BigEndian.AppendUint16(b, 0xffff)
}
