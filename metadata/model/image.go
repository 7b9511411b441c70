package model

import (
	"encoding/base64"
	"fmt"

	"google.golang.org/protobuf/proto"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// modelTopic is the topic whose two partitions are the streams 1 and 2.
var modelTopic = metadata.TopicID{0: 7}

// imageInfo is a distinct image with what steps look at most.
type imageInfo struct {
	img  *metadata.Image
	wals uint8
	wal  [maxProcs]walInfo
	part [streamCount]partInfo
	// garbage says which slots, and which objects of each kind, the image's
	// Judge finds Unreferenced, by number.
	garbageSlots   [maxProcs]uint8
	garbageObjects [maxProcs][3]uint8
}

type walInfo struct {
	inc            metadata.Incarnation
	state          metadata.WALState
	trim, end, seq uint8
}

func (w *walInfo) active() bool { return w.state == metadata.Active }

type partInfo struct {
	owner, epoch uint8
	start, end   uint8
	waits        uint8 // the WAL to be sealed first; none
	extents      []extentInfo
}

type extentInfo struct {
	slot      bool // else an object of kind
	kind      uint8
	wal       uint8 // creator
	number    uint8
	base, end uint8
}

// outcome is what a command does to an image.
type outcome struct {
	next  imageID
	code  metadata.Code
	alarm bool
	fake  bool // made by editing an image
	bad   *Violation
}

type stepKey struct {
	img imageID
	cmd cmdID
}

// intern gives equal images, whatever their index, one number.
func (m *Model) intern(img *metadata.Image) (imageID, error) {
	s := metadata.Snapshot(img)
	s.Index = 1
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
	if err != nil {
		return 0, fmt.Errorf("encode image: %w", err)
	}
	if id, ok := m.imageIDs[string(b)]; ok {
		return id, nil
	}
	same, err := metadata.FromSnapshot(s)
	if err != nil {
		return 0, err
	}
	id := imageID(len(m.images))
	m.images = append(m.images, describe(same))
	m.imageIDs[string(b)] = id
	return id, nil
}

func describe(img *metadata.Image) *imageInfo {
	info := &imageInfo{img: img}
	for w := range img.WALs() {
		i := &info.wal[info.wals]
		*i = walInfo{w.Incarnation, w.State, uint8(w.Trim), uint8(w.SealedEnd), uint8(w.CmdSeq)}
		for k := range storeSlots {
			if img.Judge(metadata.ObjectName{Kind: metadata.WALSlot, Creator: i.inc, Number: uint64(k)}.String()) == metadata.Unreferenced {
				info.garbageSlots[info.wals] |= 1 << k
			}
		}
		for kind, name := range map[uint8]metadata.ObjectKind{kindSegment: metadata.SegmentObject, kindIndex: metadata.IndexObject} {
			for k := range maxObjects {
				if img.Judge(metadata.ObjectName{Kind: name, Creator: i.inc, Number: uint64(k)}.String()) == metadata.Unreferenced {
					info.garbageObjects[info.wals][kind] |= 1 << k
				}
			}
		}
		info.wals++
	}
	for s := range streamCount {
		p, _ := img.Partition(modelTopic, int32(s))
		info.part[s] = info.partition(p)
	}
	return info
}

// number is the incarnation's number: epochs count from 1.
func number(i metadata.Incarnation) uint8 { return uint8(i.Epoch - 1) }

func (info *imageInfo) partition(p metadata.Partition) partInfo {
	out := partInfo{owner: number(p.Owner), epoch: uint8(p.Epoch), start: uint8(p.Start), end: uint8(p.End), waits: none}
	if !p.Openable() {
		out.waits = number(p.Unsealed[0])
	}
	for _, x := range p.Extents {
		n, err := metadata.ParseObjectName(x.Object)
		if err != nil {
			panic(err) // M9
		}
		e := extentInfo{wal: number(n.Creator), number: uint8(n.Number), base: uint8(x.Base), end: uint8(x.End)}
		switch n.Kind {
		case metadata.WALSlot:
			e.slot = true
		case metadata.SegmentObject:
			e.kind = kindSegment
		case metadata.IndexObject:
			e.kind = kindIndex
		}
		out.extents = append(out.extents, e)
	}
	return out
}

// command gives equal commands one number, from 1.
func (m *Model) command(c command) cmdID {
	if id, ok := m.cmdIDs[c]; ok {
		return id
	}
	id := cmdID(len(m.commands))
	if int(id) != len(m.commands) {
		panic("more commands than cmdID can number: tighten the bounds")
	}
	m.commands = append(m.commands, c)
	m.cmdIDs[c] = id
	return id
}

// outcomeOf applies a command to an image, with the real Apply, and checks the
// image and the step. Pairs that were met before are looked up.
func (m *Model) outcomeOf(img imageID, cmd cmdID) outcome {
	key := stepKey{img, cmd}
	if o, ok := m.outcomes[key]; ok {
		return o
	}
	info, c := m.images[img], m.commands[cmd]
	next, r, fake := m.fsm(info, &c)
	m.applied++
	o := outcome{fake: fake}
	if r.Err != nil {
		o.code, o.alarm = r.Err.Code, r.Err.Alarm
	}
	id, err := m.intern(next)
	if err == nil && !fake {
		err = metadata.Check(next)
	}
	if err != nil {
		o.next, o.bad = img, &Violation{PropCheck, err.Error()}
		m.outcomes[key] = o
		return o
	}
	o.next = id
	m.count(PropCheck)
	if !o.alarm {
		m.count(PropAlarm)
	}
	o.bad = m.checkImages(info, m.images[id])
	if err := metadata.CheckStep(info.img, next); err != nil && o.bad == nil && !fake {
		o.bad = &Violation{PropCheck, err.Error()}
	}
	m.outcomes[key] = o
	return o
}

// checkImages checks what can be said of two images alone.
func (m *Model) checkImages(prev, next *imageInfo) *Violation {
	for s := range streamCount {
		a, b := &prev.part[s], &next.part[s]
		if a.owner == b.owner {
			continue
		}
		if a.epoch == b.epoch {
			return violation(PropLeader, "P%d and P%d are named leader of s%d at epoch %d", a.owner, b.owner, s, a.epoch)
		}
		if !next.wal[b.owner].active() {
			return violation(PropOwner, "P%d is named owner of s%d and is %s", b.owner, s, next.wal[b.owner].state)
		}
		m.count(PropLeader)
		m.count(PropOwner)
	}
	return nil
}

// apply applies a command to the newest image of a state.
func (m *Model) apply(st *State, cmd cmdID) outcome {
	o := m.outcomeOf(st.img, cmd)
	if o.bad != nil {
		m.fail(o.bad)
		return o
	}
	if o.alarm && m.honest() {
		m.fail(violation(PropAlarm, "honest command is refused with an alarm: %s: %v", m.commands[cmd].String(), o.code))
	}
	if o.next != st.img {
		before := m.garbage(st, m.images[st.img])
		if m.cfg.on(Behind) {
			copy(st.past[1:], st.past[:])
			st.past[0] = st.img
		}
		st.img = o.next
		if after := m.garbage(st, m.images[st.img]); before&^after != 0 && !o.fake {
			m.fail(violation(PropGarbage, "garbage is garbage no longer after %s: %x, then %x", m.commands[cmd].String(), before, after))
		}
		m.count(PropGarbage)
		m.purge(st)
	}
	return o
}

// purge takes out commands that can have no effect any more: their number is
// used up, or their submitter has ended. That they have none is asked of Apply,
// that they never will follows from M14.
func (m *Model) purge(st *State) {
	if m.mutation.keepsCommands() {
		return
	}
	at := 0
	for _, id := range st.cmds {
		if id == 0 {
			break
		}
		o := m.outcomeOf(st.img, id)
		dead := o.next == st.img && (o.code == metadata.ErrStaleCommand || o.code == metadata.ErrFencedIncarnation)
		if !dead {
			st.cmds[at] = id
			at++
		}
	}
	clear(st.cmds[at:])
}

// begin makes the first image of a config.
func (m *Model) begin() (*metadata.Image, error) {
	img := metadata.Empty()
	one := func(pb *metadatapb.Command) error {
		next, results := metadata.Apply(img, img.Index()+1, metadata.NewEntry(pb))
		img = next
		return results[0].Rejected()
	}
	cluster := base64.RawURLEncoding.EncodeToString(make([]byte, 16))
	err := one(&metadatapb.Command{Body: &metadatapb.Command_InitCluster{InitCluster: &metadatapb.InitCluster{ClusterId: cluster, Generation: 1}}})
	if err != nil {
		return nil, err
	}
	var first []*metadatapb.Incarnation
	for i, id := range m.cfg.Brokers {
		c := command{kind: cmdRegister, target: uint8(id)}
		if err := one(c.message(nil)); err != nil {
			return nil, err
		}
		first = append(first, &metadatapb.Incarnation{Broker: id, Epoch: uint64(i + 1)})
	}
	topic := &metadatapb.CreateTopic{Name: "t", TopicId: modelTopic[:]}
	for _, owner := range []int{0, m.cfg.SecondOwner} {
		topic.Partitions = append(topic.Partitions, &metadatapb.PartitionSpec{Replicas: m.cfg.Brokers[owner : owner+1], Owner: first[owner]})
	}
	err = one(&metadatapb.Command{Body: &metadatapb.Command_CreateTopic{CreateTopic: topic}})
	return img, err
}
