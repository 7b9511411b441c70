package rpc_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"ponor/rpc"
)

// TestFramesArriveWhole: whatever its size, in as many parts as its memory came.
func TestFramesArriveWhole(t *testing.T) {
	s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{{Key: keyEcho, Raw: true, Limit: 40 << 20, Handle: echo}}})
	c := dial(t, listen(t, s))
	r := rand.NewChaCha8([32]byte{1})
	for _, size := range []int{0, 1, 2<<20 - 20, 2 << 20, 2<<20 + 1, 16<<20 + 1, 40<<20 - 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			body := make([]byte, size)
			_, _ = r.Read(body)
			got, err := c.Call(t.Context(), keyEcho, 0, body)
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("%d bytes came back, %v", len(got), err)
			}
		})
	}
}

// TestAnnouncedFramesCostLittle: R3 for sizes within the limit: the memory of a
// large frame comes with its bytes.
func TestAnnouncedFramesCostLittle(t *testing.T) {
	const limit = 64 << 20
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, rpc.ServerConfig{APIs: []rpc.API{{Key: keyEcho, Raw: true, Limit: limit, Handle: echo}}})
		c := pipe(t, s)
		f := frame(keyEcho, 0, 0, make([]byte, 1000))
		binary.BigEndian.PutUint32(f, limit)
		if got := allocatedBy(func() { c.Write(f); synctest.Wait() }); got > 4<<20 {
			t.Errorf("%d bytes were allocated for a frame of which 1000 arrived", got)
		}
	})
}
