package rpc

import (
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/rpc/kmsgtest"
)

// eachRequest calls f for every version of every request that kmsg knows.
func eachRequest(f func(key, version int16)) {
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		r := kmsg.RequestForKey(key)
		if r == nil {
			continue
		}
		for v := int16(0); v <= r.MaxVersion(); v++ {
			f(key, v)
		}
	}
}

// allocated returns the bytes that f allocates.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// TestLayoutWalksEveryRequest holds learned layouts to what kmsg encodes: the
// walk ends at the last byte, and decoding allocates no more than it said.
func TestLayoutWalksEveryRequest(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	rnd := rand.New(rand.NewPCG(1, 2))
	eachRequest(func(key, version int16) {
		l := learnLayout(key, version)
		for range 30 {
			r := kmsg.RequestForKey(key)
			r.SetVersion(version)
			kmsgtest.Fill(rnd, r)
			body := r.AppendTo(nil)
			w := weigher{reader: reader{b: body}, flexible: l.flexible, limit: 1 << 40, cost: 512}
			w.shape(l.root)
			if w.err != nil || len(w.b) != 0 {
				t.Fatalf("%s v%d: walk of %x ended %d bytes early: %v", kmsg.NameForKey(key), version, body, len(w.b), w.err)
			}
			in := kmsg.RequestForKey(key)
			in.SetVersion(version)
			if got := allocated(func() { in.ReadFrom(body) }); got > w.cost && !RaceDetector {
				t.Fatalf("%s v%d: decoding %d bytes allocated %d, weighed %d", kmsg.NameForKey(key), version, len(body), got, w.cost)
			}
		}
	})
}

// attack writes bodies that decode into as much memory as they can.
type attack struct {
	rnd      *rand.Rand
	flexible bool
	b        []byte
	limit    int
	text     int // length of strings; -1 for null where possible
	tags     int // tagged fields per struct
	inner    int // elements of nested arrays
}

func (a *attack) length(n int, wide bool) {
	switch {
	case a.flexible:
		a.b = appendUvarint(a.b, n+1)
	case wide:
		a.b = appendInt32(a.b, int32(n))
	default:
		a.b = appendInt16(a.b, int16(n))
	}
}

func (a *attack) shape(s *shape, depth int) {
	for i := range s.fields {
		a.field(&s.fields[i], depth)
	}
	if !a.flexible {
		return
	}
	a.b = appendUvarint(a.b, a.tags)
	for i := range a.tags {
		a.b = appendUvarint(a.b, 100+i)
		a.b = append(a.b, 0)
	}
}

func (a *attack) field(f *field, depth int) {
	switch f.kind {
	case fixedKind:
		a.b = append(a.b, make([]byte, f.size)...)
	case stringKind:
		n := a.text
		if !f.pointer {
			n = max(n, 0)
		}
		a.length(n, false)
		a.b = append(a.b, "abcdefghijklmnop"[:max(n, 0)]...)
	case bytesKind:
		a.length(0, true)
	case structKind:
		a.shape(f.shape, depth)
	case nullableStructKind:
		a.b = append(a.b, 1)
		a.shape(f.shape, depth)
	case arrayKind:
		a.array(f, depth)
	}
}

// array fills what is left of the frame with elements at the top, or has a few
// of them deeper down.
func (a *attack) array(f *field, depth int) {
	one := &attack{flexible: a.flexible, limit: a.limit, text: a.text, tags: a.tags, inner: a.inner}
	one.field(f.elem, depth+1)
	n := a.inner
	if depth == 0 {
		n = max(0, (a.limit-len(a.b)-1024)/max(len(one.b), 1)/(1+a.rnd.IntN(3)))
	}
	if len(a.b)+n*len(one.b)+1024 > a.limit {
		n = 0
	}
	a.length(n, true)
	for range n {
		a.b = append(a.b, one.b...)
	}
}

// TestWorstFrames checks R3: whatever a frame within its limit holds, frame and
// decoded request together stay below four times the limit.
func TestWorstFrames(t *testing.T) {
	if RaceDetector {
		t.Skip("the race detector allocates more")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const limit = 64 << 10
	rnd := rand.New(rand.NewPCG(3, 4))
	accepted, refused, worst := 0, 0, 0.0
	eachRequest(func(key, version int16) {
		l := learnLayout(key, version)
		for _, text := range []int{-1, 0, 2, 9} {
			for _, shape := range [][2]int{{0, 0}, {0, 1}, {1, 0}, {9, 1}, {0, 7}} {
				a := &attack{rnd: rnd, flexible: l.flexible, limit: limit, text: text, tags: shape[0], inner: shape[1]}
				a.shape(l.root, 0)
				if len(a.b) > limit {
					t.Fatalf("%s v%d: the attack is %d bytes long", kmsg.NameForKey(key), version, len(a.b))
				}
				cost, err := l.weigh(a.b, decodeLimit(limit))
				if err != nil {
					refused++
					continue
				}
				accepted++
				in := kmsg.RequestForKey(key)
				in.SetVersion(version)
				got := allocated(func() { err = in.ReadFrom(a.b) })
				if err != nil {
					t.Fatalf("%s v%d: accepted, but kmsg says: %v", kmsg.NameForKey(key), version, err)
				}
				if got > cost || int64(len(a.b))+got >= 4*limit {
					t.Errorf("%s v%d: a frame of %d bytes decoded into %d, weighed %d, text %d shape %v", kmsg.NameForKey(key), version, len(a.b), got, cost, text, shape)
				}
				worst = max(worst, float64(int64(len(a.b))+got)/limit)
			}
		}
	})
	t.Logf("%d frames accepted, %d refused, worst %.2f of the limit", accepted, refused, worst)
	if accepted < 100 || refused < 100 {
		t.Error("the attack exercises one side of the check only")
	}
}

// TestArrayCountsAreChecked: counts are refused before anything is allocated.
func TestArrayCountsAreChecked(t *testing.T) {
	l := learnLayout(int16(kmsg.Metadata), 1)
	for name, body := range map[string][]byte{
		"more elements than bytes": {0x00, 0x00, 0x10, 0x00, 0, 0},
		"more than Kafka allows":   append([]byte{0x00, 0x0f, 0x42, 0x41}, make([]byte, 3<<20)...),
		"truncated":                {0x00},
	} {
		if _, err := l.weigh(body, 1<<40); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestTaggedFieldsAreFlat holds what weigher.tags relies on: no tagged field of
// a request holds an array of structs or strings.
func TestTaggedFieldsAreFlat(t *testing.T) {
	eachRequest(func(key, version int16) {
		l := learner{key: key, version: version}
		l.flexible = l.request().IsFlexible()
		root := func() (kmsg.Request, reflect.Value) {
			r := l.request()
			return r, reflect.ValueOf(r).Elem()
		}
		_, v := root()
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Name == "Version" || f.Name == "UnknownTags" || !l.present(root, i) || !l.tagged(root, i) {
				continue
			}
			if f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() != reflect.Array && f.Type.Elem().Kind() != reflect.Uint8 {
				t.Errorf("%s v%d: tagged field %s is an array of %s", kmsg.NameForKey(key), version, f.Name, f.Type.Elem())
			}
		}
	})
}

// FuzzDecodeRequest: for every key and version, what weigh lets pass neither
// makes kmsg panic nor allocate more than was weighed.
func FuzzDecodeRequest(f *testing.F) {
	rnd := rand.New(rand.NewPCG(11, 12))
	eachRequest(func(key, version int16) {
		r := kmsg.RequestForKey(key)
		r.SetVersion(version)
		kmsgtest.Fill(rnd, r)
		f.Add(key, version, r.AppendTo(nil))
	})
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		r := kmsg.RequestForKey(key)
		if r == nil || version < 0 || version > r.MaxVersion() {
			return
		}
		r.SetVersion(version)
		cost, err := learnLayout(key, version).weigh(body, decodeLimit(DefaultFrameLimit))
		if err != nil {
			return
		}
		// Other goroutines of the fuzzing engine allocate too.
		if got := allocated(func() { err = r.ReadFrom(body) }); got > cost+64<<10 && !RaceDetector {
			t.Errorf("allocated %d, weighed %d", got, cost)
		}
		if err == nil {
			r.AppendTo(nil)
		}
	})
}

// TestLongStringsAreRefused: as by Kafka, whose strings have at most 32,767 bytes in any
// encoding.
func TestLongStringsAreRefused(t *testing.T) {
	for n, ok := range map[int]bool{1<<15 - 1: true, 1 << 15: false} {
		r := kmsg.NewPtrJoinGroupRequest()
		r.Version, r.Group = 9, strings.Repeat("g", n)
		_, err := learnLayout(r.Key(), r.Version).weigh(r.AppendTo(nil), decodeLimit(DefaultFrameLimit))
		if (err == nil) != ok {
			t.Errorf("a string of %d bytes: %v", n, err)
		}
	}
}
