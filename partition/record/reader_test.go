package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/partition/record"
)

// sample has null and empty keys and values, and headers.
func sample(big int) kbatch.Batch {
	return kbatch.New(
		kbatch.KV("k", "v").At(1000),
		kbatch.Record{Timestamp: 999, Value: []byte{}},
		kbatch.Record{Timestamp: 5000, Key: []byte("only key"), Headers: []kbatch.Header{{Name: "a", Value: []byte("b")}, {Name: "", Value: nil}}},
		kbatch.Record{Timestamp: 5001, Value: bytes.Repeat([]byte("0123456789abcdef"), big/16)},
		kbatch.KV("last", "one").At(-1),
	)
}

func TestRecordsComeOutAsTheyWentIn(t *testing.T) {
	for _, codec := range kbatch.Codecs() {
		for _, big := range []int{16, 30 << 10, 100 << 10, 3 << 20} {
			t.Run(fmt.Sprint(codec, big), func(t *testing.T) {
				want := sample(big)
				b := commitlog.Batch(want.Compressed(codec).Bytes())
				var r record.Reader
				defer r.Close()
				if err := r.Reset(b, record.ReadAll, nil); err != nil {
					t.Fatal(err)
				}
				var rec record.Record
				for i, w := range want.Records {
					if err := r.Next(&rec); err != nil {
						t.Fatalf("record %d: %v", i, err)
					}
					if !same(rec.Key, w.Key) || !same(rec.Value, w.Value) || rec.OffsetDelta != int32(i) ||
						want.BaseTimestamp+rec.TimestampDelta != w.Timestamp || int(rec.Headers) != len(w.Headers) {
						t.Fatalf("record %d: got %+v", i, rec)
					}
				}
				if err := r.Next(&rec); err != io.EOF {
					t.Fatalf("after the last record: %v, want io.EOF", err)
				}
			})
		}
	}
}

// same also tells null from empty.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func TestCheckingSeesLengthsWithoutHoldingValues(t *testing.T) {
	const big = 64 << 20
	b := commitlog.Batch(kbatch.New(kbatch.Record{Value: make([]byte, big)}).Compressed(kbatch.Zstd).Bytes())
	var r record.Reader
	defer r.Close()
	walk := func() {
		if err := r.Reset(b, record.Check, nil); err != nil {
			t.Fatal(err)
		}
		var rec record.Record
		if err := r.Next(&rec); err != nil || rec.ValueBytes != big || rec.Value != nil {
			t.Fatalf("got %d bytes, %v", rec.ValueBytes, err)
		}
		if err := r.Next(&rec); err != io.EOF {
			t.Fatalf("got %v, want io.EOF", err)
		}
	}
	walk() // fills the pools
	if got := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			walk()
		}
	}).AllocedBytesPerOp(); got > 8<<20 {
		t.Errorf("checking a record of 64 MiB allocated %d bytes", got)
	}
}

func TestMoreThanTheCapIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("unpacks 256 MiB")
	}
	value := make([]byte, 32<<20)
	var records []kbatch.Record
	for range record.MaxUncompressed/len(value) + 1 {
		records = append(records, kbatch.Record{Value: value})
	}
	b := commitlog.Batch(kbatch.New(records...).Compressed(kbatch.Zstd).Bytes())
	if err := walk(b); !errors.Is(err, record.ErrTooLarge) {
		t.Fatalf("got %v, want ErrTooLarge", err)
	}
}

// walk checks all records; the last error but io.EOF.
func walk(b commitlog.Batch) error {
	var r record.Reader
	defer r.Close()
	if err := r.Reset(b, record.Check, nil); err != nil {
		return err
	}
	var rec record.Record
	var flaw error
	for {
		err := r.Next(&rec)
		var f record.Flaw
		switch {
		case err == io.EOF:
			return flaw
		case errors.As(err, &f):
			flaw = err
		case err != nil:
			return err
		}
	}
}

// raw is a batch of count records with the given bytes behind the header.
func raw(count int32, payload ...byte) commitlog.Batch {
	b := kbatch.New(kbatch.KV("", "")).Bytes()[:commitlog.HeaderBytes]
	b = append(b, payload...)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[57:], uint32(count))
	return b
}

func TestBadLayout(t *testing.T) {
	good := []byte{12, 0, 0, 0, 1, 1, 0}
	for _, c := range []struct {
		name  string
		batch commitlog.Batch
		want  error
	}{
		{"sound", raw(1, good...), nil},
		{"no bytes at all", raw(1), record.ErrTruncated},
		{"fewer records than claimed", raw(2, good...), record.ErrTruncated},
		{"more than claimed", raw(1, append(bytes.Clone(good), good...)...), record.ErrTrailing},
		{"length beyond the batch", raw(1, 14, 0, 0, 0, 1, 1, 0), record.ErrTruncated},
		{"length too short for a record", raw(1, 10, 0, 0, 0, 1, 1), record.ErrLength},
		{"negative length", raw(1, 11, 0, 0, 0, 1, 1, 0), record.ErrLength},
		{"length of six bytes", raw(1, 0x8c, 0x80, 0x80, 0x80, 0x80, 0, 0, 0, 0, 1, 1, 0), record.ErrTruncated},
		{"key longer than the record", raw(1, 12, 0, 0, 0, 20, 1, 0), record.FlawKey},
		{"key length -2", raw(1, 12, 0, 0, 0, 3, 1, 0), record.FlawKey},
		{"value longer than the record", raw(1, 12, 0, 0, 0, 1, 20, 0), record.FlawValue},
		{"negative header count", raw(1, 12, 0, 0, 0, 1, 1, 1), record.FlawHeaders},
		{"too many headers", raw(1, 12, 0, 0, 0, 1, 1, 8), record.FlawHeaders},
		{"null header key", raw(1, 16, 0, 0, 0, 1, 1, 2, 1, 1), record.FlawHeader},
		{"bytes behind the headers", raw(1, 14, 0, 0, 0, 1, 1, 0, 9), record.FlawRest},
		{"offset delta beyond 32 bits", raw(1, 22, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x7f, 1, 1, 0, 0), record.FlawVarint},
		{"a flaw hides no later one", raw(2, append([]byte{14, 0, 0, 0, 1, 1, 0, 9}, 12, 0, 0, 0, 3, 1, 0)...), record.FlawKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := walk(c.batch); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestBadCompressedPayload(t *testing.T) {
	for _, codec := range kbatch.Codecs()[1:] {
		b := commitlog.Batch(sample(1000).Compressed(codec).Bytes())
		for cut := commitlog.HeaderBytes; cut < len(b); cut++ {
			if err := walk(b[:cut:cut]); err == nil {
				t.Errorf("%s: cut at %d of %d bytes and nobody noticed", codec, cut, len(b))
			}
		}
	}
	b := raw(1, 1, 2, 3)
	b[22] = 5
	if err := walk(b); !errors.Is(err, record.ErrCodec) {
		t.Errorf("codec 5: %v, want ErrCodec", err)
	}
}

func TestCompressorsMakeWhatReadersRead(t *testing.T) {
	for codec := record.None; codec <= record.Zstd; codec++ {
		for _, level := range []int{-131072, -1, 0, 1, 3, 9, 17, 22} {
			compressAndRead(t, codec, level)
		}
	}
}

func compressAndRead(t *testing.T, codec record.Codec, level int) {
	want := sample(200 << 10)
	plain := want.Bytes()[commitlog.HeaderBytes:]
	z, err := record.NewCompressor(codec, level, bytes.Clone(want.Bytes()[:commitlog.HeaderBytes]), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for len(plain) > 0 {
		n := min(len(plain), 7777)
		if _, err := z.Write(plain[:n]); err != nil {
			t.Fatal(err)
		}
		plain = plain[n:]
	}
	out, err := z.Finish()
	if err != nil {
		t.Fatal(err)
	}
	out[22] = byte(codec)
	var tee bytes.Buffer
	var r record.Reader
	if err := r.Reset(out, record.ReadAll, &tee); err != nil {
		t.Fatal(err)
	}
	var rec record.Record
	for range want.Records {
		if err := r.Next(&rec); err != nil {
			t.Fatalf("%s: %v", codec, err)
		}
	}
	if err := r.Next(&rec); err != io.EOF {
		t.Fatalf("%s: %v", codec, err)
	}
	r.Close()
	if !bytes.Equal(tee.Bytes(), want.Bytes()[commitlog.HeaderBytes:]) {
		t.Errorf("%s: the tee did not get every byte once", codec)
	}
}

func TestCompressorStopsAtItsLimit(t *testing.T) {
	for codec := record.None; codec <= record.Zstd; codec++ {
		z, err := record.NewCompressor(codec, 3, nil, 1000)
		if err != nil {
			t.Fatal(err)
		}
		_, err = z.Write(kbatch.Sized(0, 1, 200<<10, 1).Bytes())
		if err == nil {
			_, err = z.Finish()
		}
		z.Discard()
		if !errors.Is(err, record.ErrTooLarge) {
			t.Errorf("%s: got %v, want ErrTooLarge", codec, err)
		}
	}
}

// FuzzReader: never panics, never yields more than was claimed, and both modes
// agree on whether a batch is sound and on what they say of each record.
func FuzzReader(f *testing.F) {
	for _, codec := range kbatch.Codecs() {
		f.Add(sample(64).Compressed(codec).Bytes())
		f.Add(kbatch.Sized(1000, 3, 3*100, 1).Compressed(codec).Bytes())
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		b, _, err := commitlog.SplitBatch(p)
		if err != nil {
			return
		}
		var sound [2]bool
		var seen [2][]record.Record
		for mode := range sound {
			var r record.Reader
			if r.Reset(b, record.Mode(mode), nil) != nil {
				continue
			}
			var rec record.Record
			sound[mode] = true
			for n := int32(0); ; n++ {
				err := r.Next(&rec)
				if err == io.EOF {
					break
				}
				if n > max(b.NumRecords(), 0) {
					t.Fatalf("more than %d records", b.NumRecords())
				}
				if err == nil {
					rec.Key, rec.Value, rec.RawHeaders = nil, nil, nil
					seen[mode] = append(seen[mode], rec)
				} else {
					sound[mode] = false
					var f record.Flaw
					if !errors.As(err, &f) {
						break
					}
				}
			}
			r.Close()
		}
		if sound[0] != sound[1] {
			t.Fatalf("checking says %v, reading %v", sound[0], sound[1])
		}
		if !reflect.DeepEqual(seen[0], seen[1]) {
			t.Fatalf("checking says %+v, reading %+v", seen[0], seen[1])
		}
	})
}
