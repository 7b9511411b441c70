// Package objtest is the contract of a Bucket as a test suite. Every
// implementation and every decorator passes it; the names of the tests are the
// numbers of the promises in package objstore.
package objtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"ponor/sharedlog/objstore"
)

// Options say what the store under test can do.
type Options struct {
	// Open returns an empty store; the suite closes it.
	Open func(t *testing.T) objstore.Bucket
	// Reopen closes nothing and opens the same data a second time, as another
	// process would. Nil skips what needs it.
	Reopen func(t *testing.T, b objstore.Bucket) objstore.Bucket
	// MaxBytes bounds the largest object, default 3 MiB.
	MaxBytes int
	// Rounds bounds races, default 50.
	Rounds int
}

// Run tests a store.
func Run(t *testing.T, opts Options) {
	if opts.MaxBytes == 0 {
		opts.MaxBytes = 3 << 20
	}
	if opts.Rounds == 0 {
		opts.Rounds = 50
	}
	s := suite{opts}
	for _, c := range []struct {
		name string
		test func(*testing.T, objstore.Bucket)
	}{
		{"B1 PutNew creates only", s.createOnly},
		{"B1 one of concurrent PutNew wins", s.oneWins},
		{"B1 cancelled PutNew is whole or nothing", s.cancelled},
		{"B2 objects outlive the process", s.survive},
		{"B3 objects never change", s.immutable},
		{"B4 a loser sees the winner at once", s.loserSees},
		{"B5 bytes come back as written", s.roundTrip},
		{"ranges end where the object ends", s.ranges},
		{"Put replaces", s.replace},
		{"absent objects are not found", s.notFound},
		{"List is in byte order", s.list},
		{"Delete", s.remove},
		{"bad keys are refused", s.badKeys},
		{"Settle", s.settle},
		{"Kind is usable", s.kind},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := opts.Open(t)
			defer func() {
				if err := b.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}()
			c.test(t, b)
		})
	}
}

type suite struct{ Options }

func (suite) createOnly(t *testing.T, b objstore.Bucket) {
	must(t, b.PutNew(t.Context(), "a/b/c", body("first")))
	if err := b.PutNew(t.Context(), "a/b/c", body("second")); !errors.Is(err, objstore.ErrExists) {
		t.Fatalf("second PutNew: %v, want ErrExists", err)
	}
	// Also with the same bytes: the caller tells them apart, not the store.
	if err := b.PutNew(t.Context(), "a/b/c", body("first")); !errors.Is(err, objstore.ErrExists) {
		t.Fatalf("repeated PutNew: %v, want ErrExists", err)
	}
	want(t, b, "a/b/c", []byte("first"))
}

func (s suite) oneWins(t *testing.T, b objstore.Bucket) {
	for round := range s.Rounds {
		key := fmt.Sprintf("race/%d/x", round)
		const writers = 8
		errs := make([]error, writers)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() { errs[w] = b.PutNew(t.Context(), key, payload(w)) })
		}
		wg.Wait()
		winner := -1
		for w, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("writers %d and %d both created %s", winner, w, key)
			case err == nil:
				winner = w
			case !errors.Is(err, objstore.ErrExists):
				t.Fatalf("loser: %v, want ErrExists", err)
			}
		}
		if winner < 0 {
			t.Fatalf("nobody created %s", key)
		}
		want(t, b, key, flat(payload(winner)))
	}
}

func (s suite) cancelled(t *testing.T, b objstore.Bucket) {
	for round := range s.Rounds {
		key := fmt.Sprintf("cancel/%d", round)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.PutNew(ctx, key, payload(round)) }()
		cancel()
		err := <-done
		_, herr := readAll(b, key)
		switch {
		case err == nil && herr != nil:
			t.Fatalf("PutNew returned nil, read says %v", herr)
		case herr == nil:
			want(t, b, key, flat(payload(round)))
		case !errors.Is(herr, objstore.ErrNotFound):
			t.Fatalf("read after cancelled PutNew: %v", herr)
		}
	}
}

func (s suite) survive(t *testing.T, b objstore.Bucket) {
	if s.Reopen == nil {
		t.Skip("the store lives in this process")
	}
	must(t, b.PutNew(t.Context(), "d/e", body("kept")))
	must(t, b.Put(t.Context(), "d/f", body("kept too")))
	again := s.Reopen(t, b)
	defer again.Close()
	want(t, again, "d/e", []byte("kept"))
	want(t, again, "d/f", []byte("kept too"))
	if err := again.PutNew(t.Context(), "d/e", body("other")); !errors.Is(err, objstore.ErrExists) {
		t.Fatalf("PutNew of an object from before: %v, want ErrExists", err)
	}
}

func (suite) immutable(t *testing.T, b objstore.Bucket) {
	p := []byte("written once")
	bd := objstore.BytesBody(p)
	must(t, b.PutNew(t.Context(), "im/x", bd))
	clear(p) // the caller recycles its buffer
	want(t, b, "im/x", []byte("written once"))
	got, err := readAll(b, "im/x")
	must(t, err)
	clear(got)
	want(t, b, "im/x", []byte("written once"))
}

func (s suite) loserSees(t *testing.T, b objstore.Bucket) {
	for round := range s.Rounds {
		key := fmt.Sprintf("see/%d", round)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				err := b.PutNew(t.Context(), key, payload(w))
				if err != nil && !errors.Is(err, objstore.ErrExists) {
					t.Errorf("put: %v", err)
				}
				if _, err := readAll(b, key); err != nil {
					t.Errorf("read after PutNew ended: %v", err)
				}
			})
		}
		wg.Wait()
	}
}

func (s suite) roundTrip(t *testing.T, b objstore.Bucket) {
	rng := rand.New(rand.NewPCG(1, 1))
	for i, size := range []int{0, 1, 100, 4096, 65537, s.MaxBytes} {
		data := random(rng, size)
		key := fmt.Sprintf("rt/%d", i)
		must(t, b.PutNew(t.Context(), key, split(data, rng)))
		want(t, b, key, data)
		info, err := b.Head(t.Context(), key)
		must(t, err)
		if info != (objstore.Info{Key: key, Size: int64(size)}) {
			t.Fatalf("head: %+v, want %s of %d bytes", info, key, size)
		}
	}
	// More parts than one system call takes.
	data := random(rng, 5000)
	parts := make([][]byte, 0, len(data)+1)
	for i := range data {
		parts = append(parts, data[i:i+1])
	}
	parts = append(parts, nil)
	must(t, b.PutNew(t.Context(), "rt/parts", objstore.Body{Parts: parts, CRC32C: objstore.BytesBody(data).CRC32C}))
	want(t, b, "rt/parts", data)
}

func (suite) ranges(t *testing.T, b objstore.Bucket) {
	rng := rand.New(rand.NewPCG(2, 2))
	data := random(rng, 100_000)
	must(t, b.PutNew(t.Context(), "r/x", split(data, rng)))
	for range 50 {
		off := rng.IntN(len(data) + 1)
		dst := make([]byte, rng.IntN(70_000))
		n, err := b.GetRange(t.Context(), "r/x", int64(off), dst)
		must(t, err)
		if w := data[off:min(len(data), off+len(dst))]; !bytes.Equal(dst[:n], w) {
			t.Fatalf("range %d+%d: %d bytes, want %d equal ones", off, len(dst), n, len(w))
		}
	}
	if n, err := b.GetRange(t.Context(), "r/x", int64(len(data))+10, make([]byte, 5)); n != 0 || err != nil {
		t.Fatalf("range beyond the end: %d, %v, want 0, nil", n, err)
	}
	for _, l := range []int{0, 1, 1000, len(data), len(data) + 1000} {
		dst := make([]byte, l)
		n, size, err := b.GetTail(t.Context(), "r/x", dst)
		must(t, err)
		if w := data[max(0, len(data)-l):]; size != int64(len(data)) || !bytes.Equal(dst[:n], w) {
			t.Fatalf("tail of %d: %d bytes of %d, want %d equal ones of %d", l, n, size, len(w), len(data))
		}
	}
}

func (suite) replace(t *testing.T, b objstore.Bucket) {
	must(t, b.Put(t.Context(), "p/x", body("one, longer")))
	must(t, b.Put(t.Context(), "p/x", body("two")))
	want(t, b, "p/x", []byte("two"))
}

func (suite) notFound(t *testing.T, b objstore.Bucket) {
	must(t, b.PutNew(t.Context(), "n/dir/x", body("x")))
	for _, key := range []string{"n/y", "n/dir", "other/deep/key"} {
		_, err := b.GetRange(t.Context(), key, 0, make([]byte, 1))
		_, _, terr := b.GetTail(t.Context(), key, make([]byte, 1))
		_, herr := b.Head(t.Context(), key)
		for _, err := range []error{err, terr, herr} {
			if !errors.Is(err, objstore.ErrNotFound) {
				t.Errorf("%s: %v, want ErrNotFound", key, err)
			}
		}
	}
}

func (suite) list(t *testing.T, b objstore.Bucket) {
	keys := []string{"l/a.b", "l/a/0", "l/a/1", "l/a0", "l/b/10", "l/b/9/x", "l/c", "l2/z", "m"}
	for _, i := range rand.New(rand.NewPCG(3, 3)).Perm(len(keys)) {
		must(t, b.PutNew(t.Context(), keys[i], body(keys[i])))
	}
	for _, prefix := range []string{"", "l", "l/", "l/a", "l/a/", "l/b/9/", "l/c", "l/cc", "nothing/here", "m"} {
		for _, after := range append([]string{"", "a", "l/a/", "l/b/5", "z"}, keys...) {
			var want []string
			for _, k := range keys {
				if len(k) >= len(prefix) && k[:len(prefix)] == prefix && k > after {
					want = append(want, k)
				}
			}
			var got []string
			must(t, b.List(t.Context(), prefix, after, func(i objstore.Info) error {
				if i.Size != int64(len(i.Key)) {
					t.Errorf("list: %s has %d bytes", i.Key, i.Size)
				}
				got = append(got, i.Key)
				return nil
			}))
			if !slices.Equal(got, want) {
				t.Fatalf("list %q after %q: %q, want %q", prefix, after, got, want)
			}
		}
	}
	n := 0
	must(t, b.List(t.Context(), "l/", "", func(objstore.Info) error { n++; return io.EOF }))
	mine := errors.New("mine")
	if err := b.List(t.Context(), "l/", "", func(objstore.Info) error { return mine }); n != 1 || !errors.Is(err, mine) {
		t.Fatalf("ended list: %d calls, error %v", n, err)
	}
}

func (suite) remove(t *testing.T, b objstore.Bucket) {
	for _, k := range []string{"x/1", "x/2", "x/3"} {
		must(t, b.PutNew(t.Context(), k, body(k)))
	}
	must(t, b.Delete(t.Context(), "x/1", "x/absent", "absent/too", "x/3"))
	must(t, b.Delete(t.Context()))
	want(t, b, "x/2", []byte("x/2"))
	for _, k := range []string{"x/1", "x/3"} {
		if _, err := readAll(b, k); !errors.Is(err, objstore.ErrNotFound) {
			t.Fatalf("read after delete: %v, want ErrNotFound", err)
		}
	}
	must(t, b.PutNew(t.Context(), "x/1", body("again")))
	want(t, b, "x/1", []byte("again"))
}

func (suite) badKeys(t *testing.T, b objstore.Bucket) {
	for _, key := range []string{"", "/a", "a/", "a//b", "../a", "a/../b", ".", ".tmp/x", "a/.nfs1", "a\x00b", `a\b`} {
		if err := b.PutNew(t.Context(), key, body("x")); !errors.Is(err, objstore.ErrRefused) {
			t.Errorf("PutNew %q: %v, want ErrRefused", key, err)
		}
		if _, err := readAll(b, key); !errors.Is(err, objstore.ErrRefused) {
			t.Errorf("read %q: %v, want ErrRefused", key, err)
		}
	}
}

func (suite) settle(t *testing.T, b objstore.Bucket) {
	must(t, b.Settle(t.Context(), "nothing/"))
	must(t, b.PutNew(t.Context(), "s/a/x", body("x")))
	must(t, b.Settle(t.Context(), "s/"))
	want(t, b, "s/a/x", []byte("x"))
}

func (suite) kind(t *testing.T, b objstore.Bucket) {
	k := b.Kind()
	if k.Name == "" || k.URL == "" || k.MaxInflight < 1 || k.MaxInflight > 255 || k.TargetObject < 1<<16 {
		t.Fatalf("kind %+v", k)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func body(s string) objstore.Body { return objstore.BytesBody([]byte(s)) }

// payload differs in length and content by writer and spans several parts.
func payload(writer int) objstore.Body {
	data := bytes.Repeat([]byte{byte('a' + writer)}, 3000+1000*writer)
	return objstore.Body{Parts: [][]byte{data[:10], data[10:2000], data[2000:]}, CRC32C: objstore.BytesBody(data).CRC32C}
}

func flat(b objstore.Body) []byte { return slices.Concat(b.Parts...) }

func random(rng *rand.Rand, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return p
}

func split(data []byte, rng *rand.Rand) objstore.Body {
	b := objstore.Body{CRC32C: crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))}
	for len(data) > 0 {
		n := 1 + rng.IntN(len(data))
		b.Parts = append(b.Parts, data[:n])
		data = data[n:]
	}
	return b
}

func readAll(b objstore.Bucket, key string) ([]byte, error) {
	dst := make([]byte, 8<<20)
	n, err := b.GetRange(context.Background(), key, 0, dst)
	return dst[:n], err
}

func want(t *testing.T, b objstore.Bucket, key string, data []byte) {
	t.Helper()
	got, err := readAll(b, key)
	must(t, err)
	if !bytes.Equal(got, data) {
		t.Fatalf("%s: %d bytes, want %d, or they differ", key, len(got), len(data))
	}
}
