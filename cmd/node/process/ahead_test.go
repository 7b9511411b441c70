package process_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/cmd/node/process"
	"ponor/controller"
	"ponor/coordinator/group"
	"ponor/metadata"
	"ponor/sharedlog/objstore/mem"
)

// A partition that keeps consumer groups moves to another node, which has its records
// by then, and answers for the groups.
func TestGroupsMoveWithTheirStateAhead(t *testing.T) {
	const topics, partitions = 20, 100
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store := mem.New()
	first, clients, _, _ := start(ctx, t, store, 1)
	_, quorum, _ := first.Controller().LeaderInfo()
	at := listen(t)
	second, err := process.New(process.Config{NodeID: 2, Bucket: store, Clients: at, Join: []string{quorum}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { ended <- second.Run(running) }()
	defer func() { stop(); <-ended }()
	<-second.Ready()

	client, err := kgo.NewClient(kgo.SeedBrokers(clients, at.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	offsets := kadm.Offsets{}
	for topic := range topics {
		name := fmt.Sprint("t", topic)
		if _, err := admin.CreateTopic(ctx, partitions, 1, nil, name); err != nil {
			t.Fatal(err)
		}
		for p := range int32(partitions) {
			offsets.AddOffset(name, p, int64(topic)*1000+int64(p), -1)
		}
	}
	if err := admin.CommitAllOffsets(ctx, "g", offsets); err != nil {
		t.Fatal(err)
	}

	where := admin.FindGroupCoordinators(ctx, "g")["g"]
	if where.Err != nil {
		t.Fatal(where.Err)
	}
	nodes := map[metadata.BrokerID]*process.Node{1: first, 2: second}
	from := metadata.BrokerID(where.NodeID)
	to := 3 - from
	img := first.Controller().Image()
	topic, _ := img.Topic(group.OffsetsTopic)
	var changes []controller.PartitionChange
	for p := range img.Partitions(topic.ID) {
		changes = append(changes, controller.PartitionChange{Topic: topic.ID, Partition: p.Number, Replicas: []metadata.BrokerID{to}})
	}
	if _, err := first.Controller().Reassign(ctx, changes); err != nil {
		t.Fatal(err)
	}
	waitFor(ctx, t, "the partitions are at the other node", func() bool {
		for p := range first.Controller().Image().Partitions(topic.ID) {
			if p.Owner.Broker == from {
				return false
			}
		}
		return true
	})
	got, err := admin.FetchOffsets(ctx, "g")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.Offsets().Sorted()); n != topics*partitions {
		t.Errorf("%d offsets after the move", n)
	}
	var page bytes.Buffer
	if err := nodes[to].WriteMetrics(&page); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("ponor_coordinator_replayed_total{when=%q} %d\n", "ahead", topics*partitions); !strings.Contains(page.String(), want) {
		t.Errorf("want %s in %s", want, page.String())
	}
}
