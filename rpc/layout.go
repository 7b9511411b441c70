package rpc

import (
	"errors"
	"math"
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Decoding with kmsg allocates whole arrays by their counts, and an element in
// memory can be forty times its smallest encoding: 1 MiB of empty topics becomes
// 40 MiB of structs. So a body is walked once before it is decoded, and what
// decoding it would allocate is added up.
//
// The walk needs to know how each version of each request lies on the wire.
// kmsg keeps that in its generated code only, so a layout is learned from kmsg
// itself on first use: one field after another of a default request is changed,
// and from how the encoding changes follows whether the version has the field and
// whether it is tagged. Everything else (types, order, sizes in memory) is in the
// struct types. The tests hold every layout of every version to random
// requests: it must walk each encoding to its last byte and never promise less
// memory than decoding takes.

// errLong refuses a string that Kafka refuses. Records keep names with lengths of two
// bytes, so that what came in a compact string must not be longer.
var errLong = errors.New("a string is longer than 32767 bytes")

// errExpands refuses a request by its decoded size.
var errExpands = errors.New("decodes to more memory than its limit allows")

// decodeLimit is the most bytes that the decoded form of a request may take
// whose frame limit is limit (R3): a little under three times, so that frame and
// decoded form stay below four times with what allocation rounds up.
func decodeLimit(limit int) int64 { return int64(limit)*11/4 + 4<<10 }

// What decoding one thing costs beyond its bytes.
const (
	pointerCost  = 16   // a string header behind a pointer
	tagCost      = 128  // an entry of a map that doubles as it grows
	tagsCost     = 512  // the smallest such map
	roundingCost = 8192 // the last page of a large array
)

type kind uint8

const (
	fixedKind kind = iota
	stringKind
	bytesKind
	arrayKind
	structKind
	nullableStructKind
)

// layout is how one version of a request lies on the wire.
type layout struct {
	root     *shape
	flexible bool
}

// shape is the wire form of a struct: its untagged fields in order. Tagged fields
// are only counted; their values stay small (see learner.tagged).
type shape struct {
	fields []field
	min    int // smallest encoding in bytes
}

// field is one field, or what an array holds.
type field struct {
	kind    kind
	size    int    // fixedKind: bytes on the wire
	mem     int    // arrayKind: bytes in memory of one element
	pointer bool   // stringKind: nullable, behind a pointer
	elem    *field // arrayKind
	shape   *shape // structKind, nullableStructKind
}

// weigh walks body and returns the bytes that decoding it allocates at most. It
// fails for a body that is truncated, has counts that Kafka refuses or would
// cost more than limit.
func (l *layout) weigh(body []byte, limit int64) (int64, error) {
	w := weigher{reader: reader{b: body}, flexible: l.flexible, limit: limit, cost: 512}
	w.shape(l.root)
	return w.cost, w.err
}

type weigher struct {
	reader
	flexible    bool
	cost, limit int64
}

func (w *weigher) add(n int) {
	if w.cost += int64(n); w.cost > w.limit {
		w.fail(errExpands)
	}
}

func (w *weigher) shape(s *shape) {
	for i := range s.fields {
		w.field(&s.fields[i])
	}
	if w.flexible {
		w.tags()
	}
}

// tags counts known tagged fields like unknown ones, which cost more.
func (w *weigher) tags() {
	before := len(w.b)
	if n := w.reader.tags(); n > 0 {
		w.add(tagsCost + n*tagCost + 2*(before-len(w.b)))
	}
}

func (w *weigher) field(f *field) {
	switch f.kind {
	case fixedKind:
		w.take(f.size)
	case stringKind:
		s := w.string(w.flexible)
		if len(s) > math.MaxInt16 {
			w.fail(errLong)
		}
		w.add(len(s) + len(s)/4)
		if len(s) > 1 {
			w.add(8)
		}
		if f.pointer && s != nil {
			w.add(pointerCost)
		}
	case bytesKind:
		w.bytes(w.flexible) // aliases the frame
	case arrayKind:
		w.array(f)
	case structKind:
		w.shape(f.shape)
	case nullableStructKind:
		if w.int8() >= 0 {
			w.add(f.mem + f.mem/4)
			w.shape(f.shape)
		}
	}
}

func (w *weigher) array(f *field) {
	n := w.reader.array(w.flexible, f.elem.min())
	if n <= 0 {
		return
	}
	mem := n * f.mem
	w.add(mem + min(mem/4+8, roundingCost))
	if f.elem.kind == fixedKind {
		w.take(n * f.elem.size)
		return
	}
	for range n {
		if w.field(f.elem); w.err != nil {
			return
		}
	}
}

// min is the smallest encoding of a field.
func (f *field) min() int {
	switch f.kind {
	case fixedKind:
		return f.size
	case structKind:
		return f.shape.min
	}
	return 1 // a compact length or a null marker; right enough for the others
}

// learnLayout finds the layout of a version of a request that kmsg knows.
func learnLayout(key, version int16) *layout {
	l := learner{key: key, version: version}
	r := l.request()
	l.flexible = r.IsFlexible()
	root := func() (kmsg.Request, reflect.Value) {
		r := l.request()
		return r, reflect.ValueOf(r).Elem()
	}
	return &layout{root: l.learn(root), flexible: l.flexible}
}

type learner struct {
	key, version int16
	flexible     bool
}

// place makes a default request that has some struct in it and returns both.
type place func() (kmsg.Request, reflect.Value)

func (l *learner) request() kmsg.Request {
	r := kmsg.RequestForKey(l.key)
	setDefaults(reflect.ValueOf(r))
	r.SetVersion(l.version)
	return r
}

// learn finds the shape of the struct at p.
func (l *learner) learn(p place) *shape {
	_, v := p()
	s := new(shape)
	_, root := v.Addr().Interface().(kmsg.Request)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if root && name == "Version" || name == "UnknownTags" || !l.present(p, i) || l.tagged(p, i) {
			continue
		}
		f := l.field(v.Type().Field(i).Type, func() (kmsg.Request, reflect.Value) {
			r, v := p()
			return r, v.Field(i)
		})
		s.fields = append(s.fields, f)
		s.min += f.min()
	}
	if l.flexible {
		s.min++ // the number of tagged fields
	}
	return s
}

// field finds the wire form of the value at p.
func (l *learner) field(t reflect.Type, p place) field {
	switch t.Kind() {
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return field{kind: bytesKind}
		}
		elem := l.field(t.Elem(), func() (kmsg.Request, reflect.Value) {
			r, v := p()
			v.Set(oneElement(t))
			return r, v.Index(0)
		})
		return field{kind: arrayKind, mem: int(t.Elem().Size()), elem: &elem}
	case reflect.String:
		return field{kind: stringKind}
	case reflect.Pointer:
		if t.Elem().Kind() == reflect.String {
			return field{kind: stringKind, pointer: true}
		}
		s := l.learn(func() (kmsg.Request, reflect.Value) {
			r, v := p()
			v.Set(newDefault(t.Elem()))
			return r, v.Elem()
		})
		return field{kind: nullableStructKind, mem: int(t.Elem().Size()), shape: s}
	case reflect.Struct:
		return field{kind: structKind, shape: l.learn(p)}
	}
	return field{kind: fixedKind, size: int(t.Size())} // numbers, booleans and uuids
}

// present says whether the version encodes field i of the struct at p.
func (l *learner) present(p place, i int) bool {
	return string(encode(p, i, 0)) != string(encode(p, i, 1))
}

// tagged says whether field i is a tagged one: it appears out of nothing when it
// differs from its default. Tagged fields of requests are numbers, strings,
// flat structs and arrays of uuids, none of which is larger in memory than
// twice its encoding, so weigher.tags needs not look into them.
func (l *learner) tagged(p place, i int) bool {
	_, v := p()
	if t := v.Field(i).Type(); !l.flexible || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
		return false
	}
	none, one, two := len(encode(p, i, 0)), len(encode(p, i, 1)), len(encode(p, i, 2))
	// A step of the first kind includes tag and length, one of the second kind
	// only the value.
	return one-none != two-one
}

// encode encodes the request at p with field i changed by a number of steps. A
// step changes a number or boolean, or adds a byte or an element.
func encode(p place, i, steps int) []byte {
	r, v := p()
	if steps > 0 {
		change(v.Field(i), steps)
	}
	return r.AppendTo(nil)
}

func change(v reflect.Value, steps int) {
	switch t := v.Type(); t.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + int64(steps))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(v.Uint() + uint64(steps))
	case reflect.Float64:
		v.SetFloat(v.Float() + float64(steps))
	case reflect.String:
		v.SetString("ab"[:steps])
	case reflect.Array:
		change(v.Index(0), steps)
	case reflect.Pointer:
		if t.Elem().Kind() != reflect.String {
			v.Set(newDefault(t.Elem())) // a struct; never tagged
			return
		}
		v.Set(reflect.New(t.Elem()))
		v.Elem().SetString("ab"[:steps])
	case reflect.Slice:
		for range steps {
			v.Set(reflect.AppendSlice(v, oneElement(t)))
		}
	case reflect.Struct:
		change(v.Field(0), steps)
	}
}

// oneElement is a slice with one default element.
func oneElement(t reflect.Type) reflect.Value {
	s := reflect.MakeSlice(t, 1, 1)
	setDefaults(s.Index(0).Addr())
	return s
}

func newDefault(t reflect.Type) reflect.Value {
	p := reflect.New(t)
	setDefaults(p)
	return p
}

// setDefaults calls the Default method that kmsg's structs have.
func setDefaults(p reflect.Value) {
	if d, ok := p.Interface().(interface{ Default() }); ok {
		d.Default()
	}
}
