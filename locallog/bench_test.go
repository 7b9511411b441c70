package locallog_test

import (
	"context"
	"fmt"
	"testing"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/locallog"
)

func BenchmarkAppend(b *testing.B) {
	for _, logs := range []int{1, 100} {
		b.Run(fmt.Sprint(logs, " logs"), func(b *testing.B) {
			s, err := locallog.New(locallog.Config{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close(context.Background())
			all := make([]commitlog.Log, logs)
			for i := range all {
				if all[i], err = s.Open(b.Context(), commitlog.ID{Topic: "t", Partition: int32(i)}, 0, commitlog.Options{}); err != nil {
					b.Fatal(err)
				}
			}
			batch := kbatch.Sized(1, 10, 16<<10, 1).Bytes()
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			window := make([]commitlog.Commit, 256)
			for n := 0; b.Loop(); n++ {
				at := &window[n%len(window)]
				if err := at.Wait(b.Context()); err != nil {
					b.Fatal(err)
				}
				if *at, err = all[n%logs].Append(batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	s, err := locallog.New(locallog.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(context.Background())
	l, err := s.Open(b.Context(), commitlog.ID{Topic: "t"}, 0, commitlog.Options{})
	if err != nil {
		b.Fatal(err)
	}
	var last commitlog.Commit
	for i := range 2000 {
		if last, err = l.Append(kbatch.Sized(1, 10, 16<<10, uint64(i)).Bytes()); err != nil {
			b.Fatal(err)
		}
	}
	if err := last.Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for from := commitlog.Offset(0); b.Loop(); from = (from + 640) % 19_000 {
		rec, err := l.Read(b.Context(), from, commitlog.ReadOptions{MaxBytes: 1 << 20})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(rec.Bytes))
		rec.Release()
	}
}
