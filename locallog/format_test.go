package locallog

// White-box: the formats have no other door.

import (
	"bytes"
	"encoding/hex"
	"errors"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"ponor/commitlog"
	"ponor/internal/kbatch"
)

func TestTextFilesAreKafkas(t *testing.T) {
	offsets := map[topicPartition]commitlog.Offset{{"b", 0}: 7, {"a", 10}: 1 << 40, {"a", 2}: 0}
	const wantOffsets = "0\n3\na 2 0\na 10 1099511627776\nb 0 7\n"
	if got := string(encodeOffsets(offsets)); got != wantOffsets {
		t.Errorf("offsets are %q", got)
	}
	if got, err := decodeOffsets([]byte(wantOffsets)); err != nil || !maps.Equal(got, offsets) {
		t.Errorf("offsets read as %v, %v", got, err)
	}
	epochs := []epochStart{{0, 0}, {4, 17}, {5, 17}}
	const wantEpochs = "0\n3\n0 0\n4 17\n5 17\n"
	if got := string(encodeEpochs(epochs)); got != wantEpochs {
		t.Errorf("epochs are %q", got)
	}
	if got, err := decodeEpochs([]byte(wantEpochs)); err != nil || !slices.Equal(got, epochs) {
		t.Errorf("epochs read as %v, %v", got, err)
	}
	const wantMeta = "version: 0\ntopic_id: AQAAAAAAAAAAAAAAAAAAAA\n"
	if got := string(encodeTopicID("AQAAAAAAAAAAAAAAAAAAAA")); got != wantMeta {
		t.Errorf("metadata is %q", got)
	}
	if got, err := decodeTopicID([]byte(wantMeta)); err != nil || got != "AQAAAAAAAAAAAAAAAAAAAA" {
		t.Errorf("metadata reads as %q, %v", got, err)
	}
}

func TestBinaryFilesGolden(t *testing.T) {
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"offset index entry": {offsetEntry{5, 4096}.append(nil), "0000000500001000"},
		"time index entry":   {timeEntry{1_700_000_000_000, 5}.append(nil), "0000018bcfe5680000000005"},
		"durable":            {encodeDurable(258), "00000000000001027eb15a0a"},
		"checkpoint":         {checkpoint{258, []byte("state")}.encode(), "012c7d370500000000000001027374617465"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s is %s, want %s", name, got, c.want)
		}
	}
}

func TestBadTextFilesAreRefused(t *testing.T) {
	for _, s := range []string{"", "1\n0\n", "0\n", "0\n-1\n", "0\n2\na 0 1\n", "0\n1\na 0 1\nb 0 1\n", "0\n1\na 0\n", "0\n1\na x 1\n", "0\n1\na 0 -1\n", "0\n999999999\n"} {
		if _, err := decodeOffsets([]byte(s)); !errors.Is(err, commitlog.ErrCorrupt) {
			t.Errorf("offsets %q give %v", s, err)
		}
	}
	for _, s := range []string{"0\n1\n1\n", "0\n2\n2 0\n1 5\n", "0\n2\n1 5\n2 4\n", "0\n2\n1 5\n1 6\n", "0\n1\n-1 0\n"} {
		if _, err := decodeEpochs([]byte(s)); !errors.Is(err, commitlog.ErrCorrupt) {
			t.Errorf("epochs %q give %v", s, err)
		}
	}
	for _, s := range []string{"", "version: 1\ntopic_id: x\n", "version: 0\n", "topic_id: x\n"} {
		if _, err := decodeTopicID([]byte(s)); !errors.Is(err, commitlog.ErrCorrupt) {
			t.Errorf("metadata %q gives %v", s, err)
		}
	}
}

func TestEpochsBeginAndEndAsInKafka(t *testing.T) {
	all := beginEpoch(nil, 0, 0)
	all = beginEpoch(all, 1, 0) // 0 wrote nothing
	all = beginEpoch(all, 3, 10)
	all = beginEpoch(all, 3, 12) // re-opened by its owner
	all = beginEpoch(all, 4, 20)
	if want := []epochStart{{1, 0}, {3, 10}, {4, 20}}; !slices.Equal(all, want) {
		t.Errorf("epochs are %v, want %v", all, want)
	}
	if got := beginEpoch(all, 5, 10); !slices.Equal(got, []epochStart{{1, 0}, {5, 10}}) {
		t.Errorf("after the tail was lost epochs are %v", got)
	}
	if got := trimEpochs(all, 10); !slices.Equal(got, []epochStart{{3, 10}, {4, 20}}) {
		t.Errorf("after a trim to 10 epochs are %v", got)
	}
	if got := trimEpochs(all, 500); !slices.Equal(got, []epochStart{{4, 20}}) {
		t.Errorf("after a trim to 500 epochs are %v", got)
	}
}

func FuzzTextFiles(f *testing.F) {
	f.Add([]byte("0\n2\na 0 1\nb 2 3\n"))
	f.Add([]byte("0\n2\n0 1\n2 3\n"))
	f.Add([]byte("version: 0\ntopic_id: AQAAAAAAAAAAAAAAAAAAAA\n"))
	f.Fuzz(func(t *testing.T, p []byte) {
		if offsets, err := decodeOffsets(p); err == nil {
			if again, err := decodeOffsets(encodeOffsets(offsets)); err != nil || !maps.Equal(again, offsets) {
				t.Fatalf("offsets %v become %v, %v", offsets, again, err)
			}
		}
		if epochs, err := decodeEpochs(p); err == nil {
			if again, err := decodeEpochs(encodeEpochs(epochs)); err != nil || !slices.Equal(again, epochs) {
				t.Fatalf("epochs %v become %v, %v", epochs, again, err)
			}
		}
		if id, err := decodeTopicID(p); err == nil {
			if again, err := decodeTopicID(encodeTopicID(id)); err != nil || again != id {
				t.Fatalf("topic id %q becomes %q, %v", id, again, err)
			}
		}
	})
}

func FuzzBinaryFiles(f *testing.F) {
	f.Add(encodeDurable(5))
	f.Add(checkpoint{7, []byte("x")}.encode())
	f.Fuzz(func(t *testing.T, p []byte) {
		if o := decodeDurable(p); o != 0 && !bytes.Equal(encodeDurable(o), p) {
			t.Fatalf("durable %d", o)
		}
		if c, err := decodeCheckpoint(p); err == nil {
			if again, err := decodeCheckpoint(c.encode()); err != nil || !reflect.DeepEqual(c, again) {
				t.Fatalf("checkpoint %+v becomes %+v, %v", c, again, err)
			}
		}
	})
}

// fuzzDir writes the files of one segment.
func fuzzDir(t *testing.T, files map[string][]byte) string {
	dir := t.TempDir()
	for suffix, p := range files {
		f, err := OS{}.Open(filepath.Join(dir, offsetName(0, suffix)), true)
		if err == nil {
			_, err = f.WriteAt(p, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return dir
}

// FuzzRecover opens a segment whose files are any bytes. It never panics; what
// it accepts is whole batches with dense offsets, and every offset is found
// again through the indexes, which are as trustworthy as the bytes given.
func FuzzRecover(f *testing.F) {
	var log, index, times []byte
	for i := range 6 {
		at := len(log)
		log = append(log, kbatch.Values(int64(100+i), "a", "b").Placed(int64(2*i), 1).Bytes()...)
		index = offsetEntry{int32(2*i + 1), int32(at)}.append(index)
		times = timeEntry{int64(100 + i), int32(2*i + 1)}.append(times)
	}
	f.Add(log, index, times, int64(0))
	f.Add(log[:len(log)-5], index[:8], times[:12], int64(0))
	f.Add(log, index, times, int64(12))
	f.Fuzz(func(t *testing.T, log, index, times []byte, trusted int64) {
		dir := fuzzDir(t, map[string][]byte{logSuffix: log, indexSuffix: index, timesSuffix: times})
		s, err := openSegment(OS{}, dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		if err := s.recover(recovery{trusted: commitlog.Offset(trusted), next: -1, interval: 50}); err != nil {
			return
		}
		s.publishLocked()
		v := view{segment: s, size: s.size, end: s.end, maxTime: s.maxTime}
		for o := commitlog.Offset(0); o < min(s.end, 100); o++ {
			buf, next, err := v.read(o, s.end, 1<<20, true)
			if err == nil && len(buf) > 0 && next <= o {
				t.Fatalf("read at %d goes on at %d", o, next)
			}
		}
		_, _, _ = v.search(0, 103)
	})
}

// The place where a batch begins in the middle of a sector is the subtle one.
func TestUnwrittenSectors(t *testing.T) {
	batch := kbatch.Sized(1, 1, 1500, 1).Placed(0x0102, 1).Bytes()
	cases := []struct {
		name string
		pos  int64
		zero [2]int // range of the batch that reads as zeros
		want bool
	}{
		{"all written", 0, [2]int{0, 0}, false},
		{"first sector", 0, [2]int{0, 512}, true},
		{"second sector", 0, [2]int{512, 1024}, true},
		{"half a sector", 0, [2]int{600, 900}, false},
		{"rest of a sector that shows the offset", 505, [2]int{0, 7}, true},
		{"rest of a sector that is zeros by right", 506, [2]int{0, 6}, false},
		{"end of the file", 0, [2]int{1024, len(batch)}, true},
		{"two bytes in the last sector", int64(514 - len(batch)%512), [2]int{len(batch) - 2, len(batch)}, true},
		{"one byte in the last sector, zero by right", int64(513 - len(batch)%512), [2]int{len(batch) - 1, len(batch)}, false},
		{"last bytes", 0, [2]int{len(batch) - 3, len(batch)}, false},
	}
	for _, c := range cases {
		p := bytes.Clone(batch)
		clear(p[c.zero[0]:c.zero[1]])
		if got := hasUnwrittenSector(p, int64(len(batch)), c.pos, 0x0102); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// FuzzTorn holds that a whole batch is never taken for a torn one, whatever
// follows it, unless it shows an unwritten sector.
func FuzzTorn(f *testing.F) {
	f.Add([]byte("value"), uint16(70), []byte("garbage"))
	f.Add(bytes.Repeat([]byte("x"), 3000), uint16(700), []byte{})
	f.Fuzz(func(t *testing.T, value []byte, flip uint16, after []byte) {
		b := kbatch.New(kbatch.Record{Value: value}).Placed(9, 1).Bytes()
		at := 16 + int(flip)%(len(b)-16) // the length is another test's business
		b[at] ^= 1
		if hasUnwrittenSector(b, int64(len(b)), 0, 9) {
			return
		}
		name := filepath.Join(t.TempDir(), "x.log")
		file, err := OS{}.Open(name, true)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		p := append(slices.Clone(b), after...)
		if _, err := file.WriteAt(p, 0); err != nil {
			t.Fatal(err)
		}
		if cut, err := torn(file, 0, int64(len(p)), 9); err != nil || cut {
			t.Fatalf("a batch with a flipped bit in byte %d would be cut off (%v)", at, err)
		}
	})
}
