package broker

// AlterReplicaLogDirs v1-2: where on a broker a replica lies (KIP-113). There is
// one place for each storage mode, so naming that one is taken and does nothing:
// kafka-reassign-partitions sends back the log dirs that DescribeLogDirs told it
// when it rolls back. Any other is LOG_DIR_NOT_FOUND.
//
// Version notes:
//   v2 flexible

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
)

func (b *Broker) alterReplicaLogDirs(_ context.Context, _ call, req *kmsg.AlterReplicaLogDirsRequest) kmsg.Response {
	resp := answer[*kmsg.AlterReplicaLogDirsResponse](req)
	img := b.image()
	at := make(map[string]int) // of a topic in the response
	for _, rd := range req.Dirs {
		for _, rt := range rd.Topics {
			i, ok := at[rt.Topic]
			if !ok {
				i = len(resp.Topics)
				at[rt.Topic] = i
				lt := kmsg.NewAlterReplicaLogDirsResponseTopic()
				lt.Topic = rt.Topic
				resp.Topics = append(resp.Topics, lt)
			}
			for _, n := range rt.Partitions {
				lp := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
				lp.Partition, lp.ErrorCode = n, codeOf(b.checkLogDir(img, rd.Dir, rt.Topic, n))
				resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, lp)
			}
		}
	}
	return resp
}

// checkLogDir says whether a partition's log is in the log dir of that name.
func (b *Broker) checkLogDir(img *metadata.Image, dir, topic string, number int32) error {
	t, err := topicNamed(img, topic)
	if err != nil {
		return err
	}
	if number < 0 || number >= t.Partitions {
		return kerr.UnknownTopicOrPartition
	}
	want := b.cfg.StoreName
	if img.TopicSettings(topic).Local {
		want = b.cfg.LocalDir
	}
	if dir != want {
		return kerr.LogDirNotFound
	}
	return nil
}
