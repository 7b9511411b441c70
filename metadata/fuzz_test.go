package metadata_test

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"ponor/metadata"
)

// goldenEntries are the entries of the golden log, as a corpus.
func goldenEntries(f *testing.F) (out [][]byte) {
	b, err := os.ReadFile(goldenLog)
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		field := strings.Fields(line)
		var e []byte
		for i := 0; i+1 < len(field[1]); i += 2 {
			e = append(e, nibble(field[1][i])<<4|nibble(field[1][i+1]))
		}
		out = append(out, e)
	}
	return out
}

func nibble(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

// allocated is what a function allocates, in bytes.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// FuzzEntry decodes arbitrary bytes and applies what comes out to an image in
// the middle of things: no panic, allocation in proportion to the bytes, and an
// image that keeps every invariant.
func FuzzEntry(f *testing.F) {
	all := goldenEntries(f)
	base := metadata.Empty()
	for i, b := range all {
		f.Add(b)
		if e, err := metadata.DecodeEntry(b); err == nil && i < 20 {
			base, _ = metadata.Apply(base, metadata.Index(i+1), e)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var img *metadata.Image
		n := allocated(func() {
			e, err := metadata.DecodeEntry(b)
			if err != nil {
				return
			}
			img, _ = metadata.Apply(base, base.Index()+1, e)
		})
		if img == nil {
			return
		}
		if limit := uint64(1<<20 + 5000*len(b)); n > limit {
			t.Fatalf("%d bytes made %d bytes of garbage", len(b), n)
		}
		if err := metadata.Check(img); err != nil {
			t.Fatal(err)
		}
		if err := metadata.CheckStep(base, img); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzSnapshot decodes arbitrary bytes: no panic, and what is accepted is an
// image that comes back from its own snapshot.
func FuzzSnapshot(f *testing.F) {
	b, err := os.ReadFile(goldenSnapshot)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var img *metadata.Image
		n := allocated(func() { img, _ = metadata.DecodeSnapshot(b) })
		if limit := uint64(1<<20 + 5000*len(b)); n > limit {
			t.Fatalf("%d bytes made %d bytes of garbage", len(b), n)
		}
		if img == nil {
			return
		}
		var out bytes.Buffer
		if err := img.WriteSnapshot(&out); err != nil {
			t.Fatal(err)
		}
		again, err := metadata.DecodeSnapshot(out.Bytes())
		if err != nil || again.Hash() != img.Hash() {
			t.Fatalf("the snapshot of an accepted snapshot is another one: %v", err)
		}
	})
}

// FuzzHistory applies many commands, made of arbitrary bytes, one after another.
func FuzzHistory(f *testing.F) {
	var all []byte
	for _, b := range goldenEntries(f) {
		all = append(all, b...) // entries merge into one with all commands
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := metadata.DecodeEntry(b)
		if err != nil {
			return
		}
		img := metadata.Empty()
		for i, c := range e.Commands {
			next, _ := metadata.Apply(img, metadata.Index(i+1), metadata.NewEntry(c))
			if err := metadata.Check(next); err != nil {
				t.Fatalf("after %v: %v", c, err)
			}
			if err := metadata.CheckStep(img, next); err != nil {
				t.Fatalf("after %v: %v", c, err)
			}
			img = next
		}
	})
}

// FuzzObjectName: what parses has one spelling.
func FuzzObjectName(f *testing.F) {
	f.Add("wal/3-17/0/00000000000000000005")
	f.Add("seg/3-17/00000000000000000005")
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := metadata.ParseObjectName(s); err == nil && n.String() != s {
			t.Fatalf("%q is read as %q", s, n)
		}
	})
}

// FuzzResult: what decodes survives another trip.
func FuzzResult(f *testing.F) {
	f.Add([]byte{8, 1, 18, 1, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := metadata.UnmarshalResult(b)
		if err != nil {
			return
		}
		out, err := r.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		again, err := metadata.UnmarshalResult(out)
		if err != nil || !proto.Equal(again.Proto(), r.Proto()) {
			t.Fatalf("%+v became %+v", r, again)
		}
	})
}
