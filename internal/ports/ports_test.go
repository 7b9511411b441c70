package ports

import (
	"net"
	"strconv"
	"testing"
)

// Ports of nodes are none that the system gives to outgoing connections.
func TestRow(t *testing.T) {
	for range 20 {
		row, release, err := Row(t.Context(), 2)
		if err != nil || len(row) != 2 || row[0] < first || row[1] != row[0]+1 || row[1] >= last {
			t.Fatalf("ports %v: %v", row, err)
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(row[1]))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			t.Errorf("%s is given away before it is released", address)
		}
		release()
		release()
		if release, err := listen(t.Context(), row[0], 2); err != nil {
			t.Errorf("after the release: %v", err)
		} else {
			release()
		}
	}
}

// A row of which somebody listens on a part is none, and nothing of it stays taken.
func TestRowThatIsTaken(t *testing.T) {
	row, release, err := Row(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	release()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(row[1])))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if release, err := listen(t.Context(), row[0], 2); err == nil {
		release()
		t.Errorf("%v is free, and somebody listens there", row)
	}
	if release, err := listen(t.Context(), row[0], 1); err != nil {
		t.Errorf("the first of them stays taken: %v", err)
	} else {
		release()
	}
}
