package s3test_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"ponor/internal/s3test"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/s3"
)

// Each fault of the network or the store during a create, what the caller is
// told, and whether the object is there then. Told nothing certain, the caller
// creates again and learns from "exists" that it was there all along.
func TestCreateUnderFaults(t *testing.T) {
	for name, c := range map[string]struct {
		fault   s3test.Fault
		want    error // nil with unknown: no meaning
		unknown bool
		applied bool
	}{
		"healthy":                    {s3test.Fault{}, nil, false, true},
		"503 before":                 {s3test.Fault{Status: 503, Code: "SlowDown"}, nil, true, false},
		"500 after":                  {s3test.Fault{StatusAfter: 500}, nil, true, true},
		"reset before":               {s3test.Fault{Reset: true}, nil, true, false},
		"reset after":                {s3test.Fault{ResetAfter: true}, nil, true, true},
		"answer lost":                {s3test.Fault{SilentAfter: true}, nil, true, true},
		"slow":                       {s3test.Fault{Delay: 50 * time.Millisecond}, nil, false, true},
		"too slow":                   {s3test.Fault{Delay: 700 * time.Millisecond, Status: 503}, nil, true, false},
		"conflict once":              {s3test.Fault{Status: 409, Code: "ConditionalRequestConflict", Times: 1}, nil, false, true},
		"conflict again and again":   {s3test.Fault{Status: 409, Code: "ConditionalRequestConflict"}, nil, true, false},
		"full":                       {s3test.Fault{Status: 507, Code: "XMinioStorageFull"}, objstore.ErrFull, false, false},
		"denied":                     {s3test.Fault{Status: 403, Code: "AccessDenied"}, objstore.ErrRefused, false, false},
		"exists, says a 412 in time": {s3test.Fault{Status: 412, Code: "PreconditionFailed"}, objstore.ErrExists, false, false},
	} {
		for _, size := range []int{100, 3 << 20} {
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				t.Parallel()
				server := s3test.Start(t)
				b, hasty := store(t, server.Store("x"), s3.Options{Timeout: time.Minute}), s3.Options{Timeout: time.Minute}
				switch { // only these are waited for in vain
				case c.fault.SilentAfter:
					hasty.Timeout = 2 * time.Second // long enough to be applied
				case c.fault.Delay > 400*time.Millisecond:
					hasty.Timeout = 400 * time.Millisecond
				}
				create := store(t, server.Store("x"), hasty)
				for i := 0; create.PutNew(t.Context(), fmt.Sprint("warm-", i), objstore.BytesBody(nil)) != nil; i++ {
					// So that the connection is one that was in use.
					if i == 100 {
						t.Fatal("no create succeeds")
					}
				}
				fault := c.fault
				fault.Method = "PUT"
				end := server.Add(fault)
				data := bytes.Repeat([]byte{'d'}, size)
				err := create.PutNew(t.Context(), "k", objstore.BytesBody(data))
				end()
				known := errors.Is(err, objstore.ErrExists) || errors.Is(err, objstore.ErrFull) || errors.Is(err, objstore.ErrRefused) || errors.Is(err, objstore.ErrNotFound)
				switch {
				case c.unknown && (err == nil || known):
					t.Fatalf("told %v, want an error without meaning", err)
				case !c.unknown && !errors.Is(err, c.want):
					t.Fatalf("told %v, want %v", err, c.want)
				}
				again := b.PutNew(t.Context(), "k", objstore.BytesBody(data))
				if applied := errors.Is(again, objstore.ErrExists); applied != c.applied || !applied && again != nil {
					t.Errorf("second create says %v, applied before: %v", again, c.applied)
				}
				got := make([]byte, size+1)
				if n, err := b.GetRange(t.Context(), "k", 0, got); err != nil || !bytes.Equal(got[:n], data) {
					t.Errorf("read back %d bytes, %v", n, err)
				}
			})
		}
	}
}

// A cut in the middle of an upload leaves nothing.
func TestAbandonedUploadsAreWholeOrNothing(t *testing.T) {
	server := s3test.Start(t)
	b := store(t, server.Store("x"), s3.Options{})
	data := bytes.Repeat([]byte("whole "), 1<<20)
	for i := range 20 {
		key := fmt.Sprint("k/", i)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
		err := b.PutNew(ctx, key, objstore.BytesBody(data))
		cancel()
		info, herr := b.Head(t.Context(), key)
		if err == nil && herr != nil || herr == nil && info.Size != int64(len(data)) || herr != nil && !errors.Is(herr, objstore.ErrNotFound) {
			t.Errorf("put %v, then head %+v, %v", err, info, herr)
		}
	}
}
