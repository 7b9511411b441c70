package objstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// ErrUnfit means that the store does what a Bucket must not, or does not do what it must.
var ErrUnfit = errors.New("store cannot hold logs")

func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnfit}, args...)...)
}

// Report is what Probe learned about a store that works.
type Report struct {
	// PutNew is the fastest create of a small object that was seen.
	PutNew time.Duration
	// Checksums: a body that does not match its checksum is rejected.
	Checksums bool
}

// Probe writes, races, reads, lists and deletes a few small objects under
// "probe/" and fails if the store does not do what the log's safety rests on. A
// node calls it before it serves; a store that ignores "create only" silently
// (some S3 clones do) would let two brokers write one slot. ErrUnfit says which
// promise failed, ErrRefused what is denied; any other error is trouble that may
// pass, and Probe can be called again.
func Probe(ctx context.Context, b Bucket) (Report, error) {
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return Report{}, fmt.Errorf("name probe: %w", err)
	}
	// All in one directory: those of a directory store stay.
	p := &probe{b: b, prefix: "probe/" + hex.EncodeToString(id[:]) + "-"}
	err := p.run(ctx)
	if derr := b.Delete(ctx, p.keys...); err == nil && derr != nil {
		err = fmt.Errorf("delete: %w", derr)
	}
	if err != nil {
		return p.report, fmt.Errorf("probe store %s: %w", b.Kind().URL, err)
	}
	return p.report, nil
}

type probe struct {
	b      Bucket
	prefix string
	keys   []string
	report Report
}

func (p *probe) run(ctx context.Context) error {
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"create", p.create}, {"create concurrently", p.race}, {"read", p.read}, {"list", p.list}, {"verify checksums", p.checksums},
	} {
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func (p *probe) key(name string) string {
	k := p.prefix + name
	p.keys = append(p.keys, k)
	return k
}

// probeTries is how often a single request is tried: under trouble that strikes
// one request in ten, a whole probe without any would never come.
const probeTries = 5

// put creates an object. It says ErrExists also if that is this put's own
// earlier attempt, whose answer was lost: unsure then.
func (p *probe) put(ctx context.Context, key string, body []byte) (unsure bool, err error) {
	err = persist(ctx, probeTries, func() error {
		err := p.b.PutNew(ctx, key, BytesBody(body))
		if err != nil && !final(err) {
			unsure = true
		}
		return err
	})
	return unsure, err
}

// putOwn creates an object that nobody else creates.
func (p *probe) putOwn(ctx context.Context, key string, body []byte) error {
	unsure, err := p.put(ctx, key, body)
	if unsure && errors.Is(err, ErrExists) {
		return nil
	}
	return err
}

func (p *probe) get(ctx context.Context, key string, off int64, dst []byte) (n int, err error) {
	err = persist(ctx, probeTries, func() error {
		n, err = p.b.GetRange(ctx, key, off, dst)
		return err
	})
	return n, err
}

func (p *probe) create(ctx context.Context) error {
	for i := range 3 {
		key := p.key(fmt.Sprintf("create-%d", i))
		start := time.Now()
		if err := p.putOwn(ctx, key, []byte("first")); err != nil {
			return err
		}
		if d := time.Since(start); i == 0 || d < p.report.PutNew {
			p.report.PutNew = d
		}
		switch _, err := p.put(ctx, key, []byte("second")); {
		case err == nil:
			return unfit("an existing object was not protected: a second create succeeded")
		case !errors.Is(err, ErrExists):
			return err
		}
		if err := p.expect(ctx, key, []byte("first")); err != nil {
			return err
		}
	}
	return nil
}

// race lets many writers create the same keys: exactly one may win each.
func (p *probe) race(ctx context.Context) error {
	for round := range 4 {
		key := p.key(fmt.Sprintf("race-%d", round))
		const writers = 8
		errs, unsure := make([]error, writers), make([]bool, writers)
		content := func(w int) []byte { return bytes.Repeat([]byte{byte('a' + w)}, 1000*(w+1)) }
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() { unsure[w], errs[w] = p.put(ctx, key, content(w)) })
		}
		wg.Wait()
		winner := -1
		for w, err := range errs {
			switch {
			case err == nil && winner >= 0:
				return unfit("two concurrent creates of one object both succeeded")
			case err == nil:
				winner = w
			case !errors.Is(err, ErrExists):
				return err
			}
		}
		if winner < 0 {
			// One whose answer was lost, if any was; it shows in the bytes.
			for w, u := range unsure {
				if u && p.expect(ctx, key, content(w)) == nil {
					winner = w
				}
			}
		}
		if winner < 0 {
			return unfit("of concurrent creates of one object none succeeded")
		}
		if err := p.expect(ctx, key, content(winner)); err != nil {
			return err
		}
	}
	return nil
}

func (p *probe) expect(ctx context.Context, key string, want []byte) error {
	got := make([]byte, len(want)+1)
	n, err := p.get(ctx, key, 0, got)
	switch {
	case errors.Is(err, ErrNotFound):
		return unfit("%s was created and cannot be read: %w", key, err)
	case err != nil:
		return err
	case !bytes.Equal(got[:n], want):
		return unfit("%s has other bytes than the successful create wrote", key)
	}
	return nil
}

func (p *probe) read(ctx context.Context) error {
	data := make([]byte, 10_000)
	for i := range data {
		data[i] = byte(i * 7)
	}
	key := p.key("read")
	if err := p.putOwn(ctx, key, data); err != nil {
		return err
	}
	for _, r := range [][2]int{{0, 1}, {1, 4096}, {9_990, 10}, {9_990, 100}, {0, 10_000}} {
		dst := make([]byte, r[1])
		n, err := p.get(ctx, key, int64(r[0]), dst)
		if err != nil {
			return err
		}
		if want := data[r[0]:min(len(data), r[0]+r[1])]; !bytes.Equal(dst[:n], want) {
			return unfit("range %d+%d returned other bytes", r[0], r[1])
		}
	}
	dst := make([]byte, 128)
	if n, size, err := p.b.GetTail(ctx, key, dst); err != nil {
		return err
	} else if size != int64(len(data)) || !bytes.Equal(dst[:n], data[len(data)-128:]) {
		return unfit("the tail returned other bytes")
	}
	switch _, err := p.get(ctx, p.prefix+"absent", 0, dst); {
	case err == nil:
		return unfit("an absent object answered as if it were there")
	case !errors.Is(err, ErrNotFound):
		return err
	}
	return nil
}

func (p *probe) list(ctx context.Context) error {
	var want []string
	for i := range 12 {
		key := p.key(fmt.Sprintf("list-%03d", i*11))
		if err := p.putOwn(ctx, key, []byte("x")); err != nil {
			return err
		}
		if i > 3 {
			want = append(want, key)
		}
	}
	var got []string
	err := p.b.List(ctx, p.prefix+"list-", p.prefix+"list-033", func(i Info) error {
		got = append(got, i.Key)
		if len(got) > len(want) {
			return io.EOF
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return unfit("listing after a key returned %d objects, want %d in byte order", len(got), len(want))
	}
	return nil
}

// checksums finds out; nothing rests on it.
func (p *probe) checksums(ctx context.Context) error {
	body := BytesBody([]byte("checksum"))
	body.CRC32C++
	p.report.Checksums = p.b.PutNew(ctx, p.key("sum"), body) != nil
	return nil
}
