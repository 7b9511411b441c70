package s3_test

import (
	"io"
	"net/http"
	"runtime"
	"testing"

	"ponor/sharedlog/objstore"
	"ponor/sharedlog/objstore/s3"
)

// Bodies go from the caller's memory to the connection and come back into it:
// what a call allocates does not grow with the object.
func TestBodiesTakeNoMemory(t *testing.T) {
	const size = 8 << 20
	zeros := make([]byte, 64<<10)
	b := serve(t, s3.Options{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		w.Header().Set("Content-Range", "bytes 0-8388607/8388608")
		w.Header().Set("Content-Length", "8388608")
		w.WriteHeader(http.StatusPartialContent)
		for range size / len(zeros) {
			_, _ = w.Write(zeros)
		}
	})
	memory := make([]byte, size)
	body := objstore.Body{Parts: [][]byte{memory[:size/2], memory[size/2:]}}
	calls := map[string]func() error{
		"PutNew": func() error { return b.PutNew(t.Context(), "k", body) },
		"GetRange": func() error {
			n, err := b.GetRange(t.Context(), "k", 0, memory)
			if n != size {
				t.Errorf("read %d bytes of %d", n, size)
			}
			return err
		},
	}
	for name, call := range calls {
		var before, after runtime.MemStats
		for range 3 { // the first ones fill pools
			runtime.ReadMemStats(&before)
			if err := call(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			runtime.ReadMemStats(&after)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > size/8 {
			t.Errorf("%s of %d bytes allocates %d", name, size, got)
		} else {
			t.Logf("%s of %d bytes allocates %d", name, size, got)
		}
	}
}
