package systest_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/internal/systest"
)

// resident is a process's resident memory in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	n, err := residentBytes(pid)
	if err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	return n
}

func residentBytes(pid int) (int64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0, err
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		return 0, err
	}
	return pages * int64(os.Getpagesize()), nil
}

// watchMemory runs f and returns the most resident memory of a process
// meanwhile, as far as a look every 20 ms shows it.
func watchMemory(t *testing.T, pid int, f func()) int64 {
	t.Helper()
	peak := resident(t, pid)
	stop := make(chan struct{})
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
			if n, err := residentBytes(pid); err == nil {
				peak = max(peak, n)
			}
		}
	})
	func() {
		defer close(stop)
		f()
	}()
	watch.Wait()
	return max(peak, resident(t, pid))
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
	dialMany(t, c.Nodes[0].Address, idle, func(conn net.Conn) error { // each says hello and waits
		if _, err := conn.Write(apiVersionsFrame()); err != nil {
			return err
		}
		_, err := io.ReadFull(conn, make([]byte, 64))
		return err
	})
	silent := resident(t, c.Nodes[0].Pid())
	// These ask for far more than their buffers hold, and never read.
	questions := bytes.Repeat(fetchFrame("served"), 1000)
	peak := watchMemory(t, c.Nodes[0].Pid(), func() {
		dialMany(t, c.Nodes[0].Address, 100, func(conn net.Conn) error {
			if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
				return err
			}
			_, err := conn.Write(questions)
			return err
		})
		produce()
	})
	t.Logf("resident memory grew by %d MB for idle connections, by up to %d MB in all", (silent-before)>>20, (peak-before)>>20)
	if peak-before > 200<<20 {
		t.Errorf("resident memory grew by %d MB, more than 200", (peak-before)>>20)
	}
}

// dialMany opens n connections, up to 100 at a time, prepares each and holds
// them until the test ends.
func dialMany(t *testing.T, address string, n int, prepare func(net.Conn) error) {
	t.Helper()
	conns := make([]net.Conn, n)
	t.Cleanup(func() {
		for _, conn := range conns {
			if conn != nil {
				conn.Close()
			}
		}
	})
	var d net.Dialer
	var group sync.WaitGroup
	for first := range min(n, 100) {
		group.Go(func() {
			for i := first; i < n; i += 100 {
				conn, err := d.DialContext(t.Context(), "tcp", address)
				if err != nil {
					t.Errorf("connect: %v", err)
					return
				}
				conns[i] = conn
				if err := prepare(conn); err != nil {
					t.Errorf("connection %d of %d: %v", i, n, err)
					return
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
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

// fetchFrame is a small request with a long answer: the first 100 records of a
// topic.
func fetchFrame(topic string) []byte {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxBytes = 4, 1<<20
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.PartitionMaxBytes = 1 << 20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
}
