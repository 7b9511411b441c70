package metadata_test

import (
	"math/rand/v2"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// generator makes commands that mostly fit an image and are sometimes a little
// wrong, from a seed.
type generator struct {
	r       *rand.Rand
	seq     map[inc]uint64
	slots   map[inc]uint64
	objects uint64
	nonces  int
	topics  byte
	old     []*pb // to be delivered again, late
}

func newGenerator(seed uint64) *generator {
	return &generator{r: rand.New(rand.NewPCG(seed, 1)), seq: make(map[inc]uint64), slots: make(map[inc]uint64)}
}

func pick[T any](g *generator, list []T) (v T) {
	if len(list) == 0 {
		return v
	}
	return list[g.r.IntN(len(list))]
}

// odds is true n times in 100.
func (g *generator) odds(n int) bool { return g.r.IntN(100) < n }

func (g *generator) incarnations(img *metadata.Image, alive bool) (out []inc) {
	for w := range img.WALs() {
		if !alive || w.State == metadata.Active {
			out = append(out, w.Incarnation)
		}
	}
	return out
}

func partitions(img *metadata.Image) (out []metadata.Partition) {
	for t := range img.Topics() {
		for p := range img.Partitions(t.ID) {
			out = append(out, p)
		}
	}
	return out
}

func (g *generator) someone(img *metadata.Image) inc {
	return pick(g, g.incarnations(img, !g.odds(3)))
}

// own makes a command of an incarnation; few are delivered again later.
func (g *generator) own(i inc, c *pb) *pb {
	g.seq[i]++
	if g.odds(3) && g.seq[i] > 3 {
		g.seq[i] -= 2
	}
	c.From, c.CmdSeq = i.Proto(), g.seq[i]
	if g.odds(10) {
		g.old = append(g.old, c)
	}
	return c
}

// data makes n extents from base on, mostly objects of the creator.
func (g *generator) data(img *metadata.Image, creator inc, p metadata.Partition, base int64, n int) (xs []*metadatapb.Extent) {
	epoch := int32(p.Epoch)
	for range n {
		end := base + 1 + int64(g.r.IntN(9))
		by := creator
		if g.odds(3) {
			by = pick(g, g.incarnations(img, false))
		}
		switch g.r.IntN(3) {
		case 0:
			g.slots[by]++
			xs = append(xs, slot(by, g.slots[by]-uint64(g.r.IntN(2)), base, end, epoch))
		case 1:
			g.objects++
			xs = append(xs, seg(by, g.objects-uint64(g.r.IntN(3)), base, end, epoch))
		default:
			g.objects++
			xs = append(xs, idx(by, g.objects, base, end))
		}
		base = end
		if g.odds(2) {
			base++
		}
	}
	return xs
}

func (g *generator) next(img *metadata.Image) *pb {
	if g.odds(3) && len(g.old) > 0 {
		return pick(g, g.old)
	}
	switch k := g.r.IntN(100); {
	case k < 12:
		g.nonces += g.r.IntN(2)
		return register(int32(g.r.IntN(4)), g.nonces)
	case k < 30:
		return g.ofTopics(img)
	case k < 34:
		return g.fence(img)
	case k < 42:
		return g.sealed(img)
	case k < 95:
		return g.ofStreams(img)
	default:
		return g.ofCluster(img)
	}
}

// fresh is the number of a topic id that was not used yet.
func (g *generator) fresh() byte {
	g.topics++
	return g.topics
}

func (g *generator) ofTopics(img *metadata.Image) *pb {
	names := []string{"a.b", "a_b", "c", "d", "bad name"}
	var live []metadata.Topic
	for t := range img.Topics() {
		live = append(live, t)
	}
	t := pick(g, live)
	switch g.r.IntN(5) {
	case 0, 1:
		id := g.fresh()
		var owners []inc
		for range 1 + g.r.IntN(3) {
			owners = append(owners, g.someone(img))
		}
		return createTopic(pick(g, names), id, owners...)
	case 2:
		o := g.someone(img)
		from := t.Partitions
		if g.odds(10) {
			from--
		}
		return &pb{Body: &metadatapb.Command_CreatePartitions{CreatePartitions: &metadatapb.CreatePartitions{
			TopicId: t.ID[:], From: from, Partitions: []*metadatapb.PartitionSpec{{Replicas: []int32{int32(o.Broker)}, Owner: o.Proto()}},
		}}}
	case 3:
		if !g.odds(30) {
			return noop()
		}
		return &pb{Body: &metadatapb.Command_DeleteTopic{DeleteTopic: &metadatapb.DeleteTopic{TopicId: t.ID[:]}}}
	default:
		return g.own(g.someone(img), &pb{Body: &metadatapb.Command_TopicsGone{TopicsGone: &metadatapb.TopicsGone{TopicIds: [][]byte{t.ID[:]}}}})
	}
}

func (g *generator) fence(img *metadata.Image) *pb {
	i := g.someone(img)
	c := fence(i, g.someone(img))
	for p := range img.Owned(i) {
		if g.odds(80) {
			c.GetFence().Assignments = append(c.GetFence().Assignments, &metadatapb.Assignment{
				TopicId: p.Topic[:], Partition: p.Number, Owner: g.someone(img).Proto(),
			})
		}
	}
	return c
}

func (g *generator) sealed(img *metadata.Image) *pb {
	var fenced []metadata.WAL
	for w := range img.WALs() {
		if w.State == metadata.Fenced || g.odds(3) {
			fenced = append(fenced, w)
		}
	}
	w, sealer := pick(g, fenced), g.someone(img)
	end := max(w.Trim, g.slots[w.Incarnation]) + uint64(g.r.IntN(4))
	if g.odds(3) {
		end = w.Trim / 2
	}
	c := sealed(w.Incarnation, end)
	for p := range img.Waiting(w.Incarnation) {
		if xs := g.data(img, sealer, p, int64(p.End), 1); g.odds(70) {
			xs[0].Epoch = 0
			c.GetSealed().Streams = append(c.GetSealed().Streams, sealedStream(p.Stream, xs[0].Base, xs[0].End, xs[0]))
		}
	}
	return g.own(sealer, c)
}

func (g *generator) ofStreams(img *metadata.Image) *pb {
	o := g.someone(img)
	var mine []metadata.Partition
	for p := range img.Owned(o) {
		mine = append(mine, p)
	}
	if g.odds(5) {
		mine = append(mine, pick(g, partitions(img)))
	}
	if len(mine) == 0 {
		return createTopic(pick(g, []string{"c", "d", "e", "f"}), g.fresh(), o)
	}
	p := pick(g, mine)
	s, epoch := p.Stream, int32(p.Epoch)
	if g.odds(5) {
		epoch += int32(g.r.IntN(3)) - 1
	}
	switch g.r.IntN(10) {
	case 0, 1, 2, 3:
		w, _ := img.WAL(o)
		c := commit(w.Trim + uint64(g.r.IntN(2)))
		for _, p := range mine {
			if g.odds(70) {
				xs := g.data(img, o, p, int64(p.End), g.r.IntN(3))
				c.GetCommitExtents().Streams = append(c.GetCommitExtents().Streams, run(p.Stream, int32(p.Epoch), xs...))
			}
		}
		return g.own(o, c)
	case 4, 5:
		xs := g.data(img, o, p, int64(p.End), g.r.IntN(2))
		end := int64(p.End)
		if len(xs) > 0 {
			end = xs[len(xs)-1].End
		}
		return g.own(o, flip(s, epoch, end, g.someone(img), xs...))
	case 6, 7:
		start := int64(p.Start) + g.r.Int64N(int64(p.End-p.Start)+2)
		return g.own(o, trim(s, epoch, start))
	default:
		return g.own(o, g.replace(img, o, p, epoch))
	}
}

func (g *generator) replace(img *metadata.Image, o inc, p metadata.Partition, epoch int32) *pb {
	if len(p.Extents) == 0 {
		return noop()
	}
	i := g.r.IntN(len(p.Extents))
	j := i + g.r.IntN(len(p.Extents)-i)
	base, end := int64(p.Extents[i].Base), int64(p.Extents[j].End)
	if g.odds(3) {
		end++
	}
	if g.odds(30) { // keep one of them
		x := p.Extents[i].Proto()
		return replace(p.Stream, epoch, base, x.End, x)
	}
	xs := g.data(img, o, p, base, 1)
	xs[0].End = end
	return replace(p.Stream, epoch, base, end, xs...)
}

func (g *generator) ofCluster(img *metadata.Image) *pb {
	switch g.r.IntN(6) {
	case 0:
		return alter(metadata.KindTopic, "c", "retention.ms", "1", pick(g, []string{"x", "y"}), pick(g, []string{"-", "2"}))
	case 1:
		return alter(metadata.KindBroker, "", "log.retention.ms", "5")
	case 2:
		return &pb{Body: &metadatapb.Command_AllocateIds{AllocateIds: &metadatapb.AllocateIDs{Count: g.r.Uint64N(1000)}}}
	case 3:
		return &pb{Body: &metadatapb.Command_SetFeature{SetFeature: &metadatapb.SetFeature{Name: "group.version", Level: int32(g.r.IntN(3)) - 1}}}
	case 4:
		if g.odds(90) {
			return &pb{Body: &metadatapb.Command_BrokerState{BrokerState: &metadatapb.BrokerState{Broker: int32(g.r.IntN(5)), Cordoned: g.odds(50)}}}
		}
		return &pb{Body: &metadatapb.Command_ClaimGeneration{ClaimGeneration: &metadatapb.ClaimGeneration{Generation: img.Generation() + uint64(g.r.IntN(2))}}}
	default:
		return &pb{Body: &metadatapb.Command_UnregisterBroker{UnregisterBroker: &metadatapb.UnregisterBroker{Broker: int32(g.r.IntN(4))}}}
	}
}
