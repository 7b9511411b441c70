package commitlog_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"ponor/commitlog"
)

// history makes a random but sensible sequence: a few producers, some with
// transactions, some batches of nobody, epochs that grow.
func history(seed uint64, n int) []commitlog.BatchInfo {
	r := rand.New(rand.NewPCG(seed, 1))
	open := map[int64]bool{}
	var out []commitlog.BatchInfo
	var epoch commitlog.Epoch
	var end commitlog.Offset
	for range n {
		if r.IntN(20) == 0 {
			epoch++
		}
		i := commitlog.BatchInfo{BaseOffset: end, LeaderEpoch: epoch, ProducerID: int64(r.IntN(6)) - 1, Marker: -1}
		i.LastOffset = end + commitlog.Offset(r.IntN(3))
		switch id := i.ProducerID; {
		case id >= 3 && open[id] && r.IntN(3) == 0:
			i.Attributes = commitlog.AttrTransactional | commitlog.AttrControl
			i.Marker, i.LastOffset, open[id] = int16(r.IntN(2)), end, false
		case id >= 3:
			i.Attributes, open[id] = commitlog.AttrTransactional, true
		}
		end = i.LastOffset + 1
		out = append(out, i)
	}
	return out
}

// relevantNaively says by looking at the whole history whether batch at is
// needed.
func relevantNaively(h []commitlog.BatchInfo, at int) bool {
	i := h[at]
	if at == 0 || h[at-1].LeaderEpoch != i.LeaderEpoch || i.Attributes&commitlog.AttrControl != 0 {
		return true
	}
	if i.ProducerID < 0 {
		return false
	}
	later := 0
	for _, j := range h[at+1:] {
		if j.ProducerID == i.ProducerID && j.Attributes&commitlog.AttrControl == 0 {
			later++
		}
	}
	if later < 5 {
		return true
	}
	if i.Attributes&commitlog.AttrTransactional == 0 {
		return false
	}
	for before := at - 1; before >= 0; before-- {
		if h[before].ProducerID == i.ProducerID {
			return h[before].Attributes&commitlog.AttrControl != 0
		}
	}
	return true
}

func TestKeepRelevantKeepsExactlyWhatStateDependsOn(t *testing.T) {
	for seed := range uint64(50) {
		h := history(seed, 300)
		var want []commitlog.BatchInfo
		for at := range h {
			if relevantNaively(h, at) {
				want = append(want, h[at])
			}
		}
		if got := commitlog.KeepRelevant(h); !slices.Equal(got, want) {
			t.Fatalf("seed %d: kept %d batches, want %d", seed, len(got), len(want))
		}
	}
}

func TestDeltasOfPiecesReduceToDeltasOfTheWhole(t *testing.T) {
	for seed := range uint64(50) {
		h := history(seed, 200)
		r := rand.New(rand.NewPCG(seed, 2))
		var pieces []commitlog.BatchInfo
		for rest := h; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			pieces = append(pieces, commitlog.KeepRelevant(rest[:n])...)
			rest = rest[n:]
		}
		if got, want := commitlog.KeepRelevant(pieces), commitlog.KeepRelevant(h); !slices.Equal(got, want) {
			t.Fatalf("seed %d: pieces reduce to %d batches, the whole to %d", seed, len(got), len(want))
		}
	}
}

func TestDeltasForgetEnoughAndReset(t *testing.T) {
	var d commitlog.Deltas
	for at := range commitlog.Offset(100_000) {
		d.Add(commitlog.BatchInfo{BaseOffset: at, LastOffset: at, ProducerID: int64(at % 3)})
	}
	if d.Len() != 16 { // five each, and the first of the epoch
		t.Errorf("kept %d batches", d.Len())
	}
	d.Reset()
	if d.Len() != 0 || len(d.Infos()) != 0 {
		t.Error("Reset keeps batches")
	}
	d.Add(commitlog.BatchInfo{BaseOffset: 3, ProducerID: -1})
	d.Add(commitlog.BatchInfo{BaseOffset: 4, ProducerID: -1})
	if got := d.Infos(); len(got) != 1 || got[0].BaseOffset != 3 {
		t.Errorf("after Reset kept %+v", got)
	}
}

func BenchmarkDeltas(b *testing.B) {
	h := history(1, 4096)
	var d commitlog.Deltas
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%len(h) == 0 {
			d.Reset()
		}
		d.Add(h[n%len(h)])
	}
}
