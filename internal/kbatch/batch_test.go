package kbatch_test

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/internal/kbatch"
)

func sample() kbatch.Batch {
	return kbatch.New(
		kbatch.Record{Timestamp: 1000, Key: []byte("k"), Value: []byte("v"), Headers: []kbatch.Header{{Name: "h", Value: []byte("x")}, {Name: "null"}}},
		kbatch.Record{Timestamp: 900, Value: []byte(strings.Repeat("abc", 40_000))},
		kbatch.Record{Timestamp: 1100, Key: []byte{}},
	)
}

func TestWhatIsEncodedIsDecoded(t *testing.T) {
	variants := map[string]kbatch.Batch{
		"plain":         sample(),
		"idempotent":    sample().Idempotent(7, 3, 1<<31-2),
		"transactional": sample().InTransaction(8, 0, 0),
		"appended":      sample().AppendedAt(5000),
		"placed":        sample().Placed(1<<40, 12),
		"commit":        kbatch.Marker(9, 2, true, 77, 1234),
		"abort":         kbatch.Marker(9, 2, false, -1, 1234),
		"empty":         kbatch.New(),
		"grown":         sample().With(kbatch.KV("a", "b").At(9999)),
	}
	for name, b := range variants {
		for _, codec := range kbatch.Codecs() {
			t.Run(name+"/"+codec.String(), func(t *testing.T) {
				want := b.Compressed(codec)
				enc := want.Bytes()
				got, rest, err := kbatch.Decode(append(bytes.Clone(enc), "rest"...))
				if err != nil {
					t.Fatal(err)
				}
				if string(rest) != "rest" {
					t.Errorf("rest is %q", rest)
				}
				if codec == kbatch.XerialSnappy {
					want.Codec = kbatch.Snappy
				}
				if want.Records == nil {
					want.Records = []kbatch.Record{}
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("got  %+.200v\nwant %+.200v", got, want)
				}
				if !bytes.Equal(enc, b.Compressed(codec).Bytes()) {
					t.Error("encoding is not deterministic")
				}
			})
		}
	}
}

// kmsg is an independent decoder of the same format.
func TestHeaderAgreesWithKmsg(t *testing.T) {
	b := sample().InTransaction(7, 3, 10).Placed(42, 5)
	var k kmsg.RecordBatch
	if err := k.ReadFrom(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	if k.FirstOffset != 42 || k.PartitionLeaderEpoch != 5 || k.Magic != 2 || k.Attributes != 0x10 || k.LastOffsetDelta != 2 ||
		k.FirstTimestamp != 1000 || k.MaxTimestamp != 1100 || k.ProducerID != 7 || k.ProducerEpoch != 3 || k.FirstSequence != 10 || k.NumRecords != 3 {
		t.Errorf("kmsg reads %+v", k)
	}
	var r kmsg.Record
	if err := r.ReadFrom(k.Records); err != nil {
		t.Fatal(err)
	}
	if string(r.Key) != "k" || string(r.Value) != "v" || len(r.Headers) != 2 || r.Headers[0].Key != "h" {
		t.Errorf("kmsg reads record %+v", r)
	}
}

// The bytes of a commit marker, worked out by hand from the format.
func TestMarkerGolden(t *testing.T) {
	const want = "0000000000000000" + "00000042" + "ffffffff" + "02" + "bde5a380" + "0030" + "00000000" +
		"0000000000000064" + "0000000000000064" + "0000000000000007" + "0001" + "ffffffff" + "00000001" +
		"20" + "00" + "00" + "00" + "08" + "00000001" + "0c" + "000000000005" + "00"
	got := hex.EncodeToString(kbatch.Marker(7, 1, true, 5, 100).Bytes())
	if got != want {
		t.Errorf("marker is\n%s, want\n%s", got, want)
	}
}

func TestSizedIsAboutThatBigAndSeedsDiffer(t *testing.T) {
	for _, size := range []int{200, 4096, 1 << 20} {
		a, b := kbatch.Sized(1, 3, size, 1).Bytes(), kbatch.Sized(1, 3, size, 2).Bytes()
		if len(a) < size*9/10 || len(a) > size*11/10+64 {
			t.Errorf("asked for %d bytes, got %d", size, len(a))
		}
		if bytes.Equal(a, b) {
			t.Errorf("two seeds give the same %d bytes", size)
		}
	}
}

func TestDamageIsReported(t *testing.T) {
	good := sample().Bytes()
	for i := 8; i < len(good); i += 1 + len(good)/500 {
		if i >= 12 && i < 16 {
			continue // the leader epoch is outside the CRC by design
		}
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if _, _, err := kbatch.Decode(bad); err == nil {
			t.Errorf("a flipped bit in byte %d was not noticed", i)
		}
	}
	for n := range len(good) {
		if n > 200 && n%997 != 0 {
			continue
		}
		if _, err := kbatch.DecodeAll(good[:n]); err == nil && n > 0 {
			t.Errorf("a batch cut to %d bytes was not noticed", n)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range kbatch.Codecs() {
		f.Add(kbatch.Values(5, "a", "b").Compressed(c).Bytes())
	}
	f.Add(kbatch.Marker(1, 1, true, 1, 1).Bytes())
	f.Fuzz(func(t *testing.T, p []byte) {
		refreshCRC(p) // or the fuzzer never gets past the checksum
		b, _, err := kbatch.Decode(p)
		if err != nil {
			return
		}
		again, _, err := kbatch.Decode(b.Bytes())
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		if !reflect.DeepEqual(b, again) {
			t.Fatalf("got %+v, want %+v", again, b)
		}
	})
}
