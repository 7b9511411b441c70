package broker

import (
	"iter"
	"slices"

	"ponor/coordinator/group"
	"ponor/coordinator/group/assignor"
	"ponor/metadata"
)

// GroupTopics is an image as consumer groups see it.
func GroupTopics(img *metadata.Image) group.Topics { return groupTopics{img} }

type groupTopics struct{ img *metadata.Image }

func (g groupTopics) Version() uint64 { return uint64(g.img.Index()) }

func (g groupTopics) Marks() (topics, racks any) { return g.img.TopicsMark(), g.img.PlacesMark() }

func (g groupTopics) Topic(name string) (assignor.Topic, bool) {
	t, ok := g.img.Topic(name)
	if !ok || t.Deleting {
		return assignor.Topic{}, false
	}
	at := assignor.Topic{ID: t.ID, Partitions: t.Partitions}
	if !g.zoned() {
		return at, true
	}
	at.Racks = make([][]string, 0, t.Partitions)
	zones := make(map[metadata.BrokerID]string)
	for p := range g.img.Partitions(t.ID) {
		var racks []string
		for _, id := range p.Replicas {
			zone, seen := zones[id]
			if !seen {
				br, _ := g.img.Broker(id)
				zone = br.Zone
				zones[id] = zone
			}
			if zone != "" && !slices.Contains(racks, zone) {
				racks = append(racks, zone)
			}
		}
		at.Racks = append(at.Racks, racks)
	}
	return at, true
}

// zoned says whether some broker has said where it is.
func (g groupTopics) zoned() bool {
	for b := range g.img.Brokers() {
		if b.Zone != "" {
			return true
		}
	}
	return false
}

func (g groupTopics) Name(id [16]byte) (string, bool) {
	t, ok := g.img.TopicByID(id)
	return t.Name, ok && !t.Deleting
}

// Names has internal topics, too, as in Kafka: clients that do not want them send a
// pattern that leaves them out.
func (g groupTopics) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for t := range g.img.Topics() {
			if !t.Deleting && !yield(t.Name) {
				return
			}
		}
	}
}
