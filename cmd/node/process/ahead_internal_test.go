package process

import (
	"bytes"
	"testing"

	"ponor/coordinator"
)

func FuzzPiece(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodePiece(coordinator.Piece{Partition: 7, Epoch: 3, First: true, From: 1 << 40, Live: 9, Batches: []byte("batches")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePiece(b)
		if err != nil {
			if len(b) >= pieceHead {
				t.Errorf("%d bytes are refused: %v", len(b), err)
			}
			return
		}
		again, err := decodePiece(encodePiece(p))
		if err != nil || !bytes.Equal(again.Batches, p.Batches) {
			t.Fatalf("%d bytes of batches come back as %d: %v", len(p.Batches), len(again.Batches), err)
		}
		again.Batches, p.Batches = nil, nil
		if again.Topic != p.Topic || again.Partition != p.Partition || again.Epoch != p.Epoch || again.First != p.First || again.From != p.From || again.Live != p.Live {
			t.Errorf("%+v comes back as %+v", p, again)
		}
	})
}
