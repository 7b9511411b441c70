package s3test_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"ponor/commitlog/logtest"
	"ponor/internal/s3test"
	"ponor/sharedlog"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/objtest"
	"ponor/sharedlog/objstore/s3"
	"ponor/sharedlog/sharedlogtest"
)

func TestMain(m *testing.M) {
	s3test.Environment()
	os.Exit(m.Run())
}

// store opens a store by its URL.
func store(tb testing.TB, url string, opts s3.Options) *s3.Bucket {
	tb.Helper()
	b, err := s3.Open(tb.Context(), url, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = b.Close() })
	return b
}

// fresh opens stores with a prefix of their own each.
func fresh(s *s3test.Server) func(testing.TB) objstore.Bucket {
	var n atomic.Int32
	return func(tb testing.TB) objstore.Bucket {
		return store(tb, s.Store(fmt.Sprintf("cluster-%d/x", n.Add(1))), s3.Options{})
	}
}

func TestBucketKeepsItsPromises(t *testing.T) {
	open := fresh(s3test.Start(t))
	objtest.Run(t, objtest.Options{
		Open: func(t *testing.T) objstore.Bucket { return open(t) },
		Reopen: func(t *testing.T, b objstore.Bucket) objstore.Bucket {
			return store(t, b.Kind().URL, s3.Options{})
		},
	})
}

func TestProbePassesAndLeavesNothing(t *testing.T) {
	server := s3test.Start(t)
	b := store(t, server.Store(""), s3.Options{})
	before := time.Now()
	r, err := objstore.Probe(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("probe in %v: %+v, requests %v", time.Since(before), r, server.Counts())
	if err := b.List(t.Context(), "", "", func(i objstore.Info) error { t.Errorf("left %s", i.Key); return nil }); err != nil {
		t.Fatal(err)
	}
}

// A server that ignores If-None-Match is refused, whatever else it can do.
func TestProbeRefusesAServerWithoutConditions(t *testing.T) {
	server := s3test.Start(t)
	server.Ignore("If-None-Match")
	if _, err := objstore.Probe(t.Context(), store(t, server.Store(""), s3.Options{})); err == nil {
		t.Error("a server that overwrites was accepted")
	} else {
		t.Log(err)
	}
}

// Losers of a race may be told "conflict" instead of "exists".
func TestProbePassesAServerThatAnswersConflicts(t *testing.T) {
	server := s3test.Start(t)
	server.Add(s3test.Fault{Method: "PUT", Every: 3, Status: 409, Code: "ConditionalRequestConflict"})
	if _, err := objstore.Probe(t.Context(), store(t, server.Store(""), s3.Options{})); err != nil {
		t.Error(err)
	}
}

func TestManyObjectsAreListedAndDeleted(t *testing.T) {
	server := s3test.Start(t)
	b := store(t, server.Store("many"), s3.Options{})
	var keys []string
	for i := range 2345 {
		key := fmt.Sprintf("k/%05d", i)
		if err := b.PutNew(t.Context(), key, objstore.BytesBody([]byte("x"))); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	list := func(after string) (n int) {
		last := after
		err := b.List(t.Context(), "k/", after, func(i objstore.Info) error {
			if i.Key <= last {
				t.Fatalf("%s after %s", i.Key, last)
			}
			last = i.Key
			n++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := list(""); n != 2345 {
		t.Errorf("listed %d of 2345", n)
	}
	if n := list("k/00999"); n != 1345 {
		t.Errorf("listed %d after the thousandth, want 1345", n)
	}
	if err := b.Delete(t.Context(), keys...); err != nil {
		t.Fatal(err)
	}
	if n := list(""); n != 0 {
		t.Errorf("%d are left", n)
	}
	if c := server.Counts(); c["POST"] != 3 || c["LIST"] != 3+2+1 || c["DELETE"] != 0 {
		t.Errorf("requests %v, want 3 deletes of many and 6 lists", c)
	}
}

// The contract of the log over the shared log over S3, and with a store that
// fails one put in 13 after it was applied and one request in 29 before.
func TestLogContract(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults []s3test.Fault
	}{
		{"healthy", nil},
		{"faulty", []s3test.Fault{{Method: "PUT", Every: 13, ResetAfter: true}, {Every: 29, Status: 503, Code: "SlowDown"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := s3test.Start(t)
			for _, f := range c.faults {
				server.Add(f)
			}
			open := fresh(server)
			logtest.Run(t, func(tb testing.TB) logtest.World {
				return sharedlogtest.NewWorld(tb, open(tb), func(cfg *sharedlog.Config) { cfg.CacheBytes = 1 << 20 })
			})
			t.Logf("requests %v", server.Counts())
		})
	}
}

// BenchmarkPutNew and BenchmarkGetRange measure this package, the library and a
// server in the same process.
func BenchmarkPutNew(b *testing.B) {
	for _, size := range []int{4 << 10, 1 << 20, 8 << 20} {
		b.Run(fmt.Sprint(size>>10, "KiB"), func(b *testing.B) {
			s := store(b, s3test.Start(b).Store("bench"), s3.Options{})
			body := objstore.BytesBody(make([]byte, size))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := s.Put(b.Context(), fmt.Sprint("k/", i%4), body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkGetRange(b *testing.B) {
	s := store(b, s3test.Start(b).Store("bench"), s3.Options{})
	if err := s.Put(b.Context(), "k", objstore.BytesBody(make([]byte, 8<<20))); err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{4 << 10, 1 << 20, 8 << 20} {
		b.Run(fmt.Sprint(size>>10, "KiB"), func(b *testing.B) {
			dst := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.GetRange(b.Context(), "k", 0, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
