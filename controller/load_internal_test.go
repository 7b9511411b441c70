package controller

import (
	"math"
	"testing"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/partition"
)

// A load survives the way to the leader, cut to what may be listed; numbers that
// no traffic has count as none.
func TestLoadOnTheWire(t *testing.T) {
	in := &partition.Loads{Bytes: 5, Requests: 7}
	for i := range MaxBusiest + 9 {
		in.Busiest = append(in.Busiest, partition.Load{Topic: metadata.TopicID{1}, Partition: int32(i), Bytes: float64(1000 - i)})
	}
	out := loadFrom(loadProto(in))
	if out.Bytes != 5 || out.Requests != 7 || len(out.Busiest) != MaxBusiest || out.Busiest[3] != in.Busiest[3] {
		t.Errorf("%+v", out)
	}
	if loadFrom(nil) != nil {
		t.Error("no load became one")
	}
	topic := make([]byte, len(metadata.TopicID{}))
	for _, bad := range []float64{math.NaN(), math.Inf(1), -1} {
		if loadFrom(&controllerpb.Load{Bytes: bad}) != nil {
			t.Errorf("%v bytes/s were believed", bad)
		}
		l := loadFrom(&controllerpb.Load{Busiest: []*controllerpb.PartitionLoad{
			{TopicId: topic, Requests: bad}, {TopicId: topic[:3]}, {TopicId: topic, Partition: 4}}})
		if len(l.Busiest) != 1 || l.Busiest[0].Partition != 4 {
			t.Errorf("of %v requests/s and a short topic id: %+v", bad, l.Busiest)
		}
	}
}
