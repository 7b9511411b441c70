package broker

// DescribeQuorum v0-2: who votes on metadata and who follows (KIP-595, 836, 853).
//
// Version notes:
//   v1 times of the last fetch and of having caught up
//   v2 directory ids, nodes with their controller listeners, error messages
//
// It is one partition, number 0 of __cluster_metadata. The leader answers,
// through whichever broker is asked. Nodes without a Raft log follow by the
// leader's stream; their end offset is the index of their image.

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/controller"
)

const (
	metadataTopic      = "__cluster_metadata"
	controllerListener = "CONTROLLER"
)

func (b *Broker) describeQuorum(ctx context.Context, _ call, req *kmsg.DescribeQuorumRequest) kmsg.Response {
	resp := answer[*kmsg.DescribeQuorumResponse](req)
	ctx, cancel := adminTimeout(ctx, requestTimeout)
	defer cancel()
	var info controller.QuorumInfo
	var err error
	if len(req.Topics) != 1 || len(req.Topics[0].Partitions) != 1 {
		err = fail(kerr.InvalidRequest, "ask for partition 0 of %s and nothing else", metadataTopic)
	} else if info, err = b.cfg.Admin.DescribeQuorum(ctx); err != nil {
		err = fail(kerr.RequestTimedOut, "the quorum does not answer: %v", err)
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndMessage(err)
		return resp
	}
	rt := kmsg.NewDescribeQuorumResponseTopic()
	rt.Topic = req.Topics[0].Topic
	rp := kmsg.NewDescribeQuorumResponseTopicPartition()
	if rp.Partition = req.Topics[0].Partitions[0].Partition; rt.Topic != metadataTopic || rp.Partition != 0 {
		rp.ErrorCode, rp.ErrorMessage = codeAndMessage(fail(kerr.UnknownTopicOrPartition, "only partition 0 of %s has a quorum", metadataTopic))
	} else {
		fillQuorum(&rp, info)
		for _, m := range info.Members {
			if n, ok := quorumNode(m); ok && m.Voter {
				resp.Nodes = append(resp.Nodes, n)
			}
		}
	}
	rt.Partitions = append(rt.Partitions, rp)
	resp.Topics = append(resp.Topics, rt)
	return resp
}

// fillQuorum describes the one partition. Offsets in Kafka are of the next
// entry, one above the last.
func fillQuorum(rp *kmsg.DescribeQuorumResponseTopicPartition, info controller.QuorumInfo) {
	rp.LeaderID, rp.LeaderEpoch, rp.HighWatermark = int32(info.Leader), int32(info.Term), int64(info.Commit)+1
	for _, m := range info.Members {
		s := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		s.ReplicaID, s.ReplicaDirectoryID, s.LogEndOffset = int32(m.ID), m.Directory, -1
		if !m.Heard.IsZero() {
			s.LogEndOffset = int64(m.LastIndex) + 1
			s.LastFetchTimestamp, s.LastCaughtUpTimestamp = stamp(m.Heard), stamp(m.CaughtUp)
		}
		if m.Voter {
			rp.CurrentVoters = append(rp.CurrentVoters, s)
		} else {
			rp.Observers = append(rp.Observers, s)
		}
	}
}

func stamp(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return t.UnixMilli()
}

func quorumNode(m controller.QuorumMember) (kmsg.DescribeQuorumResponseNode, bool) {
	n := kmsg.NewDescribeQuorumResponseNode()
	host, port, err := net.SplitHostPort(m.Address)
	if err != nil {
		return n, false
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return n, false
	}
	l := kmsg.NewDescribeQuorumResponseNodeListener()
	l.Name, l.Host, l.Port = controllerListener, host, uint16(p)
	n.NodeID, n.Listeners = int32(m.ID), append(n.Listeners, l)
	return n, true
}
