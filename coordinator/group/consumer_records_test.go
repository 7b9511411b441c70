package group_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"ponor/coordinator"
	"ponor/coordinator/group"
)

// goldenRecords are keys and values as Kafka 4.4.0 writes them.
var goldenRecords = []struct{ name, key, value string }{
	{"epoch", "0003000167", "0000000000070100080102030405060708"},
	{"member", "000500016700016d", "000002690007636c69656e74092f312e322e332e34030462617204666f6f04662e2a000013880672616e6765010012010000afc8020672616e6765040102030000"},
	{"target epoch", "0006000167", "00000000000700"},
	{"target", "000700016700016d", "0000030102030405060708090a0b0c0d0e0f10030000000000000001001102030405060708090a0b0c0d0e0f1002000000050000"},
	{"position", "000800016700016d", "0000000000070000000601020102030405060708090a0b0c0d0e0f10030000000000000001010009030000000300000007021102030405060708090a0b0c0d0e0f100200000005010005020000000200"},
	{"expression", "00100001670003662e2a", "00000204666f6f000000000000000900000000000003e800"},
}

func golden(t *testing.T) []coordinator.Record {
	t.Helper()
	var list []coordinator.Record
	for _, g := range goldenRecords {
		key, err := hex.DecodeString(g.key)
		if err != nil {
			t.Fatal(err)
		}
		value, err := hex.DecodeString(g.value)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, coordinator.Record{Key: key, Value: value})
	}
	return list
}

func TestConsumerRecordsAreKafkas(t *testing.T) {
	m := group.New(group.Config{})
	var want []string
	for _, r := range golden(t) {
		if err := m.Replay(r, 0, 0); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("%q = %q", r.Key, r.Value))
	}
	slices.Sort(want)
	if got := state(m); !slices.Equal(got, want) {
		t.Errorf("written back as\n%v\nwant\n%v", got, want)
	}
}

func TestDamagedConsumerRecordsAreErrors(t *testing.T) {
	for i, r := range golden(t) {
		for n := range len(r.Value) {
			m := group.New(group.Config{})
			if err := m.Replay(coordinator.Record{Key: r.Key, Value: append([]byte{}, r.Value[:n]...)}, 0, 0); err == nil {
				t.Errorf("%s: the first %d of %d bytes are taken", goldenRecords[i].name, n, len(r.Value))
			}
		}
		for n := 2; n < len(r.Key); n++ {
			m := group.New(group.Config{})
			if err := m.Replay(coordinator.Record{Key: r.Key[:n], Value: r.Value}, 0, 0); err == nil {
				t.Errorf("%s: a key of %d of %d bytes is taken", goldenRecords[i].name, n, len(r.Key))
			}
		}
	}
}

func FuzzConsumerRecords(f *testing.F) {
	for _, g := range goldenRecords {
		key, _ := hex.DecodeString(g.key)
		value, _ := hex.DecodeString(g.value)
		f.Add(key, value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		m := group.New(group.Config{})
		if m.Replay(coordinator.Record{Key: key, Value: value}, 0, 0) != nil {
			return
		}
		before := state(m)
		again := group.New(group.Config{})
		m.Live(func(r coordinator.Record) bool {
			if err := again.Replay(r, 0, 0); err != nil {
				t.Errorf("what was written back is not taken: %v", err)
			}
			return true
		})
		if got := state(again); !slices.Equal(got, before) {
			t.Errorf("state changes when it is written back: %v, then %v", before, got)
		}
	})
}
