package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"ponor/controller"
)

// A store that takes no writes shows wherever an operator looks, and the verdict says so.
func TestStoreTroubleShows(t *testing.T) {
	n := newTestNode(t)
	n.does("topic create kept --partitions 1")
	n.says("cluster status", exitOK, "1 topic, 1 partition, 0 without leader", "STORE", "ok")
	store := filepath.Join(n.dir, "store")
	if err := os.Rename(store, store+".away"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Rename(store+".away", store) }) // before the node stops
	stuck := make(chan struct{})
	go func() {
		defer close(stuck)
		_ = run([]string{"produce", "kept", "--bootstrap", n.clients, "--timeout", "1s"}, strings.NewReader("x\n"), &strings.Builder{}, &strings.Builder{})
	}()
	<-stuck
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if code, _, _ := n.runs("cluster status"); code != exitOK || time.Now().After(end) {
			break
		}
	}
	n.says("cluster status", exitError, "the store takes no writes of broker 1:", "no such file or directory, for ")
	n.says("cluster status --format json", exitError, `"store_trouble": "`, `"problems": [`)
	n.says("balance explain", exitOK, "no such file or directory, for ")
	n.says("top --once --interval 100ms", exitOK, "STORE", ", for ")
}

func TestClusterStatusNamesBrokersThatDoNotServe(t *testing.T) {
	v := clusterView{Brokers: []brokerView{{ID: 1, Address: "a:1"}, {ID: 2, Address: "b:2"}, {ID: 4, Address: "d:4"}}}
	v.join([]controller.BrokerBalance{
		{ID: 1, State: "open", Role: "leader", Trouble: "no space left on device", TroubleFor: 90 * time.Second},
		{ID: 2, State: "silent", Role: "voter"},
		{ID: 3, State: "down", Role: "voter", Address: "c:3"},
		{ID: 4, State: "draining", Role: "observer"},
	})
	topic := kadm.TopicDetail{Topic: "t", Partitions: kadm.PartitionDetails{}}
	for p, leader := range []int32{1, 2, 3, -1, 9} {
		topic.Partitions[int32(p)] = kadm.PartitionDetail{Topic: "t", Partition: int32(p), Leader: leader, Replicas: []int32{leader}}
	}
	v.countPartitions(kadm.TopicDetails{"t": topic})
	v.judge()
	want := []string{
		"4 partitions without a leader", "the store takes no writes of broker 1: no space left on device, for 1 min 30 s",
		"broker 2 (b:2) does not answer", "broker 3 (c:3) is down",
	}
	slices.Sort(v.Problems)
	slices.Sort(want)
	if !slices.Equal(v.Problems, want) {
		t.Errorf("problems: %q, want %q", v.Problems, want)
	}
	if last := v.Brokers[3]; v.Partitions != 5 || last.ID != 3 || last.Leaders != 1 || last.Replicas != 1 {
		t.Errorf("%+v", v)
	}
}
