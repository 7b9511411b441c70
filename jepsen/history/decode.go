package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/go-faster/jx"
)

// decoder decodes lines. What there are millions of is decoded field by field,
// everything else by reflection.
type decoder struct {
	json    *jx.Decoder
	words   map[string]string
	keys    lists[Key]
	sends   lists[Sent]
	polls   lists[Polled]
	offsets lists[Offset]
}

func newDecoder() *decoder {
	return &decoder{json: jx.DecodeBytes(nil), words: make(map[string]string)}
}

// maxWords bounds the strings that are kept once for all operations with them.
const maxWords = 1 << 14

// lists cuts slices from large ones, so that a history has few of these.
type lists[T any] struct {
	building []T
	room     []T
}

const listsRoom = 4096

// cut copies what was built.
func (l *lists[T]) cut() []T {
	n := len(l.building)
	if n == 0 {
		return nil
	}
	if n > len(l.room) {
		l.room = make([]T, max(n, listsRoom))
	}
	out := l.room[:n:n]
	l.room = l.room[n:]
	copy(out, l.building)
	return out
}

// lines decodes lines up to the first that cannot be.
func (d *decoder) lines(text []byte, to *said) {
	for len(text) > 0 {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte{'\n'})
		if line = bytes.TrimSpace(line); len(line) > 0 {
			d.json.ResetBytes(line)
			whole := *to
			if err := d.line(to); err != nil {
				*to = whole
				to.err = err
				return
			}
		}
		to.lines++
	}
}

// line decodes one line.
func (d *decoder) line(to *said) error {
	err := d.json.ObjBytes(func(j *jx.Decoder, field []byte) error {
		switch string(field) {
		case "header":
			if to.lines > 0 || to.header != nil {
				return errors.New("a second header")
			}
			to.header = new(Header)
			return plain(j, to.header)
		case "op":
			to.ops = append(to.ops, Op{})
			return d.op(&to.ops[len(to.ops)-1])
		case "event":
			to.events = append(to.events, Event{})
			return plain(j, &to.events[len(to.events)-1])
		case "sample":
			to.samples = append(to.samples, Sample{})
			return plain(j, &to.samples[len(to.samples)-1])
		}
		return j.Skip()
	})
	if err != nil {
		return err
	}
	if err := d.json.Skip(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}

// plain decodes a value by reflection.
func plain(j *jx.Decoder, v any) error {
	raw, err := j.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}

func (d *decoder) op(o *Op) error {
	return d.json.ObjBytes(func(j *jx.Decoder, field []byte) (err error) {
		switch string(field) {
		case "i":
			o.Index, err = j.Int64()
		case "p":
			o.Process, err = j.Int32()
		case "f":
			err = word(d, &o.F)
		case "phase":
			err = word(d, &o.Phase)
		case "at":
			o.Invoked, err = j.Int64()
		case "end":
			o.Completed, err = j.Int64()
		case "type":
			err = word(d, &o.Type)
		case "err":
			err = word(d, &o.Err)
		case "node":
			o.Node, err = j.Int32()
		case "attempts":
			o.Attempts, err = j.Int32()
		case "keys":
			o.Keys, err = list(d, &d.keys, func(k *Key) error { return number(j, k) })
		case "seek":
			o.Seek, err = j.Bool()
		case "sends":
			o.Sends, err = list(d, &d.sends, d.sent)
		case "polls":
			o.Polls, err = list(d, &d.polls, d.polled)
		case "offsets":
			o.Offsets, err = list(d, &d.offsets, d.offset)
		case "spec":
			err = word(d, &o.Spec)
		case "group":
			err = word(d, &o.Group)
		case "member":
			err = word(d, &o.Member)
		case "gen":
			o.Gen, err = j.Int32()
		case "producer":
			err = plain(j, &o.Producer)
		case "topic":
			err = plain(j, &o.Topic)
		case "rebalance":
			err = plain(j, &o.Rebalance)
		default:
			err = j.Skip()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		return nil
	})
}

func (d *decoder) sent(s *Sent) error {
	return d.json.ObjBytes(func(j *jx.Decoder, field []byte) (err error) {
		switch string(field) {
		case "k":
			err = number(j, &s.Key)
		case "id":
			s.ID, err = j.Int32()
		case "v":
			err = number(j, &s.Value)
		case "o":
			s.Offset, err = j.Int64()
		default:
			err = j.Skip()
		}
		return err
	})
}

func (d *decoder) polled(p *Polled) error {
	return d.json.ObjBytes(func(j *jx.Decoder, field []byte) (err error) {
		switch string(field) {
		case "k":
			err = number(j, &p.Key)
		case "v":
			err = number(j, &p.Value)
		case "o":
			p.Offset, err = j.Int64()
		case "damage":
			err = word(d, &p.Damage)
		default:
			err = j.Skip()
		}
		return err
	})
}

func (d *decoder) offset(o *Offset) error {
	return d.json.ObjBytes(func(j *jx.Decoder, field []byte) (err error) {
		switch string(field) {
		case "k":
			err = number(j, &o.Key)
		case "o":
			o.Offset, err = j.Int64()
		case "asked":
			o.Asked, err = j.Int64()
		case "epoch":
			o.Epoch, err = j.Int32()
		case "err":
			err = word(d, &o.Err)
		default:
			err = j.Skip()
		}
		return err
	})
}

// list decodes an array.
func list[T any](d *decoder, to *lists[T], one func(*T) error) ([]T, error) {
	to.building = to.building[:0]
	err := d.json.Arr(func(*jx.Decoder) error {
		var zero T
		to.building = append(to.building, zero)
		return one(&to.building[len(to.building)-1])
	})
	return to.cut(), err
}

// number decodes a number of a type of its own.
func number[N ~int32 | ~int64](j *jx.Decoder, to *N) error {
	v, err := j.Int64()
	*to = N(v)
	if err == nil && int64(*to) != v {
		return fmt.Errorf("%d is too large", v)
	}
	return err
}

// word decodes a string.
func word[S ~string](d *decoder, to *S) error {
	b, err := d.json.StrBytes()
	if err != nil {
		return err
	}
	s, ok := d.words[string(b)]
	if !ok {
		s = string(b)
		if len(d.words) < maxWords {
			d.words[s] = s
		}
	}
	*to = S(s)
	return nil
}
