package commitlog

import (
	"cmp"
	"slices"
)

// batchesPerProducer is how many batches of a producer Kafka remembers to
// recognise a retry (max.in.flight.requests.per.connection of an idempotent
// producer is at most 5).
const batchesPerProducer = 5

// Deltas reduces a sequence of batches to the few that the partition's state
// depends on (C11), so that a log stores and replays those instead of all:
//
//   - the last five data batches of every producer id,
//   - every control batch,
//   - the first batch of every transaction,
//   - the first batch of every leader epoch.
//
// Cutting a log in pieces loses nothing: the deltas of the pieces, taken one
// after another, reduce to the deltas of the whole.
//
// The zero value is ready. It is not safe for concurrent use. Memory is bounded
// by what it keeps: O(producers + control batches + transactions + epochs).
type Deltas struct {
	kept      []kept
	producers map[int64]*producerDeltas
	dropped   int // entries of kept without a reason
	epoch     Epoch
	started   bool
}

// kept is a batch and the number of reasons to keep it; without one it is
// removed at the next sweep.
type kept struct {
	info    BatchInfo
	reasons int
}

// producerDeltas is what Deltas knows of one producer id. last is a ring of
// base offsets of data batches, by which kept is searched.
type producerDeltas struct {
	last  [batchesPerProducer]Offset
	n     int
	inTxn bool
}

// Add takes the next batch in offset order.
func (d *Deltas) Add(i BatchInfo) {
	reasons := 0
	if !d.started || i.LeaderEpoch != d.epoch {
		d.started, d.epoch = true, i.LeaderEpoch
		reasons++
	}
	if i.Attributes&AttrControl != 0 {
		reasons++
		if p := d.producers[i.ProducerID]; p != nil {
			p.inTxn = false
		}
	} else if i.ProducerID >= 0 {
		reasons += d.addProducer(i)
	}
	if reasons > 0 {
		d.kept = append(d.kept, kept{info: i, reasons: reasons})
	}
}

// addProducer counts the reasons a producer's data batch has, and takes one
// from the batch that falls out of its last five.
func (d *Deltas) addProducer(i BatchInfo) int {
	if d.producers == nil {
		d.producers = make(map[int64]*producerDeltas)
	}
	p := d.producers[i.ProducerID]
	if p == nil {
		p = &producerDeltas{}
		d.producers[i.ProducerID] = p
	}
	reasons := 1
	if i.Attributes&AttrTransactional != 0 && !p.inTxn {
		p.inTxn = true
		reasons++
	}
	slot := &p.last[p.n%batchesPerProducer]
	if p.n >= batchesPerProducer {
		d.release(*slot)
	}
	*slot = i.BaseOffset
	p.n++
	return reasons
}

func (d *Deltas) release(base Offset) {
	at, ok := slices.BinarySearchFunc(d.kept, base, func(k kept, o Offset) int { return cmp.Compare(k.info.BaseOffset, o) })
	if !ok {
		return
	}
	if d.kept[at].reasons--; d.kept[at].reasons > 0 {
		return
	}
	// Sweeping at half keeps Add at amortised O(log n).
	if d.dropped++; d.dropped > 16 && d.dropped > len(d.kept)/2 {
		d.kept = slices.DeleteFunc(d.kept, func(k kept) bool { return k.reasons == 0 })
		d.dropped = 0
	}
}

// Len is the number of batches that Infos would return.
func (d *Deltas) Len() int { return len(d.kept) - d.dropped }

// Infos returns what is kept, in offset order, as a new slice.
func (d *Deltas) Infos() []BatchInfo {
	out := make([]BatchInfo, 0, d.Len())
	for _, k := range d.kept {
		if k.reasons > 0 {
			out = append(out, k.info)
		}
	}
	return out
}

// Reset forgets everything and keeps the memory for the next use.
func (d *Deltas) Reset() {
	clear(d.producers)
	*d = Deltas{kept: d.kept[:0], producers: d.producers}
}

// KeepRelevant reduces a sequence in offset order by Deltas.
func KeepRelevant(infos []BatchInfo) []BatchInfo {
	var d Deltas
	for _, i := range infos {
		d.Add(i)
	}
	return d.Infos()
}
