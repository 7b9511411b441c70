package objstore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/dir"
	"ponor/sharedlog/objstore/fault"
	"ponor/sharedlog/objstore/mem"
	"ponor/sharedlog/objstore/objtest"
)

func TestProbePassesGoodStoresAndLeavesNothing(t *testing.T) {
	for _, b := range []objstore.Bucket{mem.New(), objtest.Dir(t, dir.Options{})} {
		r, err := objstore.Probe(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if r.PutNew <= 0 {
			t.Errorf("%s: report %+v", b.Kind().Name, r)
		}
		if err := b.List(t.Context(), "", "", func(i objstore.Info) error { t.Errorf("left %s", i.Key); return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

// A directory store that is probed at each start does not get more directories.
func TestProbesLeaveOneDirectory(t *testing.T) {
	root := t.TempDir()
	b, err := dir.New(root, dir.Options{Owner: "o"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for range 2 {
		if _, err := objstore.Probe(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(root, "probe")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// overwriting ignores "create only", as old S3 clones do.
type overwriting struct{ objstore.Bucket }

func (o overwriting) PutNew(ctx context.Context, key string, body objstore.Body) error {
	return o.Bucket.Put(ctx, key, body)
}

// racy checks and then puts, so that only sequential creates are safe.
type racy struct{ objstore.Bucket }

func (r racy) PutNew(ctx context.Context, key string, body objstore.Body) error {
	if _, err := r.Bucket.Head(ctx, key); err == nil {
		return objstore.ErrExists
	}
	time.Sleep(time.Millisecond) // lets every other writer look, too
	return r.Bucket.Put(ctx, key, body)
}

// unordered lists in any order.
type unordered struct{ objstore.Bucket }

func (u unordered) List(ctx context.Context, prefix, after string, fn func(objstore.Info) error) error {
	var all []objstore.Info
	if err := u.Bucket.List(ctx, prefix, after, func(i objstore.Info) error { all = append(all, i); return nil }); err != nil {
		return err
	}
	for i := range all {
		if err := fn(all[len(all)-1-i]); err != nil {
			return err
		}
	}
	return nil
}

func TestProbeRefusesBadStores(t *testing.T) {
	corrupt := fault.New(mem.New(), 1)
	corrupt.Add(fault.Rule{Ops: []fault.Op{fault.GetTail}, Corrupt: fault.FlipByte})
	for want, b := range map[string]objstore.Bucket{
		"not protected":     overwriting{mem.New()},
		"both succeeded":    racy{mem.New()},
		"in byte order":     unordered{mem.New()},
		"tail returned":     corrupt,
		"store refused":     refusing{mem.New()},
		"absent object ans": lying{mem.New()},
	} {
		if _, err := objstore.Probe(t.Context(), b); err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, objstore.ErrUnfit) && !errors.Is(err, objstore.ErrRefused) {
			t.Errorf("probe: %v, want an error with %q", err, want)
		}
	}
}

// What a store cannot help now and then is not held against it.
func TestProbeTellsTroubleFromBrokenPromises(t *testing.T) {
	trouble := errors.New("503 slow down")
	often := fault.New(mem.New(), 7)
	often.Add(fault.Rule{Ops: []fault.Op{fault.PutNew, fault.GetRange}, Chance: 0.1, Before: trouble})
	often.Add(fault.Rule{Ops: []fault.Op{fault.PutNew, fault.GetRange}, Chance: 0.1, After: trouble})
	if _, err := objstore.Probe(t.Context(), often); err != nil {
		t.Errorf("trouble with one request in five: %v", err)
	}
	for skip := 0; skip < 60; skip += 4 {
		for _, rule := range []fault.Rule{{Skip: skip, Times: 1, Before: trouble}, {Skip: skip, Times: 1, After: trouble}} {
			b := fault.New(mem.New(), 1)
			b.Add(rule)
			if _, err := objstore.Probe(t.Context(), b); errors.Is(err, objstore.ErrUnfit) || errors.Is(err, objstore.ErrRefused) {
				t.Errorf("trouble with call %d: %v", skip, err)
			}
		}
	}
}

type refusing struct{ objstore.Bucket }

func (refusing) PutNew(context.Context, string, objstore.Body) error { return objstore.ErrRefused }

type lying struct{ objstore.Bucket }

func (l lying) GetRange(ctx context.Context, key string, off int64, dst []byte) (int, error) {
	n, err := l.Bucket.GetRange(ctx, key, off, dst)
	if err != nil {
		return 0, nil
	}
	return n, nil
}
