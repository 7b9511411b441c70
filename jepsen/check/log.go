package check

import "slices"

// pageSize is how many offsets are stored together. Offsets are dense but for
// compacted topics, so that arrays take less than maps.
const pageSize = 512

// page is a part of a log while it is built; after seal, val holds indices.
type page struct {
	val [pageSize]int32 // place + 1; then index + 1
	at  *[pageSize]seen
}

// seen says when something was known first.
type seen struct{ known, polled int64 }

// keyLog is what is known of one partition: a value for each offset that was
// acknowledged or polled. The index of an offset is its rank among these.
type keyLog struct {
	pages map[int64]*page
	last  *page
	lastN int64
	// others are further values of an offset that has one.
	others map[int64][]int32
	// twice has the offsets of a value behind its first one.
	twice map[int32][]int64

	// After seal, by index:
	offsets []int64
	vals    []int32
	known   []int64 // when this or a later offset was known to exist
	polled  []int64 // when this offset was polled first, or never

	// floor is the offset up to which somebody deleted records, or may have.
	floor     int64
	compacted bool
	retained  bool // some records may expire
	gone      bool // its topic was deleted

	acks    timeline // offsets acknowledged
	seen    timeline // offsets polled, or below an end that was told
	ends    timeline // answers to list-offsets latest
	starts  timeline // answers to list-offsets earliest
	epochs  timeline
	trims   timeline // low watermarks that delete-records answered
	scanned int32    // highest index that a reader from the beginning reached, -1
	final   final
}

// final is what the final phase read of a key.
type final struct {
	max int64 // highest offset
	// done: a reader polled nothing behind what it had read, over and over.
	done bool
	at   int64 // of the last poll
	// read has the indices that were read.
	read bitset
}

func (l *keyLog) init() {
	l.pages, l.lastN, l.scanned, l.final.max = map[int64]*page{}, -1, -1, -1
}

// losing says that records may go away without a trace in the history.
func (l *keyLog) losing() bool { return l.compacted || l.retained || l.gone }

// add enters a value at an offset.
func (l *keyLog) add(offset int64, place int32, known, polled int64) {
	n := offset / pageSize
	if n != l.lastN {
		p := l.pages[n]
		if p == nil {
			p = &page{at: new([pageSize]seen)}
			for i := range p.at {
				p.at[i] = seen{never, never}
			}
			l.pages[n] = p
		}
		l.last, l.lastN = p, n
	}
	i := offset % pageSize
	at := &l.last.at[i]
	at.known, at.polled = min(at.known, known), min(at.polled, polled)
	switch was := l.last.val[i]; {
	case was == 0:
		l.last.val[i] = place + 1
	case was != place+1:
		if l.others == nil {
			l.others = map[int64][]int32{}
		}
		if !slices.Contains(l.others[offset], place) {
			l.others[offset] = append(l.others[offset], place)
		}
	}
}

// again enters a further offset of a value.
func (l *keyLog) again(place int32, offset int64) {
	if l.twice == nil {
		l.twice = map[int32][]int64{}
	}
	if !slices.Contains(l.twice[place], offset) {
		l.twice[place] = append(l.twice[place], offset)
	}
}

// seal gives every offset its index.
func (l *keyLog) seal() {
	order := make([]int64, 0, len(l.pages))
	n := 0
	for no, p := range l.pages {
		order = append(order, no)
		for _, v := range p.val {
			if v != 0 {
				n++
			}
		}
	}
	slices.Sort(order)
	l.offsets, l.vals = make([]int64, 0, n), make([]int32, 0, n)
	l.known, l.polled = make([]int64, 0, n), make([]int64, 0, n)
	for _, no := range order {
		p := l.pages[no]
		for i, v := range p.val {
			if v == 0 {
				continue
			}
			l.offsets, l.vals = append(l.offsets, no*pageSize+int64(i)), append(l.vals, v-1)
			l.known, l.polled = append(l.known, p.at[i].known), append(l.polled, p.at[i].polled)
			p.val[i] = int32(len(l.vals))
		}
		p.at = nil
	}
	for i := len(l.known) - 2; i >= 0; i-- {
		l.known[i] = min(l.known[i], l.known[i+1])
	}
	l.last, l.lastN = nil, -1
}

// index of an offset, -1 if nothing is known of it.
func (l *keyLog) index(offset int64) int32 {
	if offset < 0 {
		return -1
	}
	n := offset / pageSize
	if n != l.lastN {
		p := l.pages[n]
		if p == nil {
			return -1
		}
		l.last, l.lastN = p, n
	}
	return l.last.val[offset%pageSize] - 1
}

// place of the first value at an offset, -1 if none is known.
func (l *keyLog) place(offset int64) int32 {
	if i := l.index(offset); i >= 0 {
		return l.vals[i]
	}
	return -1
}

// from is the first index at or behind an offset.
func (l *keyLog) from(offset int64) int32 {
	i, _ := slices.BinarySearch(l.offsets, offset)
	return int32(i)
}

// span is first and last index of a value.
func (l *keyLog) span(v *val, place int32) (first, last int32) {
	first = l.index(v.first)
	last = first
	if v.flags&wasTwice != 0 {
		for _, o := range l.twice[place] {
			i := l.index(o)
			first, last = min(first, i), max(last, i)
		}
	}
	return first, last
}

// timeline is the largest of some numbers that was known at a time. Only what
// raises it is kept.
type timeline []instant

type instant struct {
	at, max int64
	op      int32 // that told it
}

// add enters a number. Operations come in the order in which they ended, nearly:
// one that comes late counts from when its follower did, which is on the safe
// side.
func (t *timeline) add(at, n int64, op int32) {
	if k := len(*t); k > 0 {
		last := (*t)[k-1]
		if n <= last.max {
			return
		}
		at = max(at, last.at)
	}
	*t = append(*t, instant{at, n, op})
}

// before is the largest number that was told before a time.
func (t timeline) before(at int64) (instant, bool) {
	i, _ := slices.BinarySearchFunc(t, at, func(x instant, at int64) int {
		if x.at < at {
			return -1
		}
		return 1
	})
	if i == 0 {
		return instant{max: -1}, false
	}
	return t[i-1], true
}

// bitset is a set of indices.
type bitset []uint64

func (b *bitset) set(i int32) {
	for int(i>>6) >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[i>>6] |= 1 << (i & 63)
}

func (b bitset) has(i int32) bool { return int(i>>6) < len(b) && b[i>>6]&(1<<(i&63)) != 0 }
