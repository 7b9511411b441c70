package controller

import (
	"slices"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/partition"
)

// MaxBusiest is how many partitions a broker lists when it reports its load:
// enough to even brokers out by, and 3 KiB in a heartbeat whatever it hosts.
const MaxBusiest = 64

func loadProto(l *partition.Loads) *controllerpb.Load {
	out := &controllerpb.Load{Bytes: l.Bytes, Requests: l.Requests}
	for _, p := range l.Busiest[:min(len(l.Busiest), MaxBusiest)] {
		out.Busiest = append(out.Busiest, &controllerpb.PartitionLoad{
			TopicId: p.Topic[:], Partition: p.Partition, Bytes: p.Bytes, Requests: p.Requests,
		})
	}
	return out
}

// loadFrom is nil if there is none. What cannot be a load counts as none.
func loadFrom(pb *controllerpb.Load) *partition.Loads {
	if pb == nil || !rates(pb.Bytes, pb.Requests) {
		return nil
	}
	out := &partition.Loads{Bytes: pb.Bytes, Requests: pb.Requests}
	for _, p := range pb.Busiest[:min(len(pb.Busiest), MaxBusiest)] {
		if len(p.TopicId) == len(metadata.TopicID{}) && rates(p.Bytes, p.Requests) {
			out.Busiest = append(out.Busiest, partition.Load{
				Topic: metadata.TopicID(p.TopicId), Partition: p.Partition, Bytes: p.Bytes, Requests: p.Requests,
			})
		}
	}
	slices.SortFunc(out.Busiest, partition.Busier)
	return out
}

// rates says whether all are numbers that traffic can have.
func rates(values ...float64) bool {
	for _, v := range values {
		if !(v >= 0 && v < 1e15) { // not even NaN
			return false
		}
	}
	return true
}
