package broker_test

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/broker"
	"ponor/coordinator"
	"ponor/coordinator/group"
	"ponor/metadata"
)

// behind has an old image for as long as old is set.
type behind struct {
	*cluster
	old atomic.Pointer[metadata.Image]
}

func (b *behind) Image() *metadata.Image {
	if img := b.old.Load(); img != nil {
		return img
	}
	return b.cluster.Image()
}

// A broker that becomes the coordinator while it answers knows topics then that
// it did not know when the request came: their offsets are not left out, which
// would read as none.
func TestOffsetsOfTopicsThatComeWithTheGroup(t *testing.T) {
	meta := new(behind)
	var groups *coordinator.Shards[*group.Machine]
	c := newCluster(t, func(c *cluster, cfg *broker.Config) {
		meta.cluster = c
		groups = coordinator.New(coordinator.Config[*group.Machine]{
			Topic: groupTopic, Partitions: c,
			New: func(int32) *group.Machine { return group.New(group.Config{}) },
			Image: func() *metadata.Image {
				meta.old.Store(nil)
				return c.Image()
			},
		})
		cfg.Meta, cfg.Groups = meta, groups
	})
	t.Cleanup(groups.Close)
	before := c.Image()
	offsets, topic := c.topic(groupTopic, 1), c.topic("t", 1)
	p, err := c.Get(offsets, 0)
	if err != nil {
		t.Fatal(err)
	}
	groups.Opened(p)
	cl := c.dial()

	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group = "g"
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Offset = 7
	commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{part}}}
	isCode(t, "commit", ask[*kmsg.OffsetCommitResponse](cl, 9, commit).Topics[0].Partitions[0].ErrorCode, nil)

	meta.old.Store(before)
	fetch := kmsg.NewPtrOffsetFetchRequest()
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group = "g"
	fetch.Groups = []kmsg.OffsetFetchRequestGroup{rg}
	got := ask[*kmsg.OffsetFetchResponse](cl, 10, fetch).Groups[0]
	isCode(t, "fetch", got.ErrorCode, nil)
	if meta.old.Load() != nil {
		t.Fatal("the image was not behind")
	}
	if len(got.Topics) != 1 || got.Topics[0].TopicID != topic || got.Topics[0].Partitions[0].Offset != 7 {
		t.Errorf("the group's offsets are %+v, want 7 of the topic", got.Topics)
	}
}
