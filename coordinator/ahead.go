package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ponor/commitlog"
	"ponor/metadata"
	"ponor/partition"
)

// A move leaves a gap in which nobody answers: until its next owner has replayed the
// log. So the owner of a long one sends the records ahead, and moves it when little is
// left to replay. They are no more than a head start: what was sent is durable, and so
// a part of the log at every later epoch, and the new owner goes on from there by the
// log itself.

// Piece is a part of a shard's log on its way to the node that shall have the partition.
type Piece struct {
	Topic     metadata.TopicID
	Partition int32
	// Epoch is that of the owner who sends.
	Epoch commitlog.Epoch
	// First is the piece at the log's start: what came before it counts for nothing.
	First bool
	// From is the offset where Batches go on, right behind those of the piece before.
	From commitlog.Offset
	// Live is the size in bytes of the live records in the log, 0 if it is not known.
	Live int64
	// Batches are record batches one after another. TakeAhead does not keep them.
	Batches []byte
}

var (
	// ErrNotAhead says that a piece is of no use here: its sender is not the owner, or
	// the piece does not go on where the one before ended.
	ErrNotAhead = errors.New("not a piece of what was sent ahead")

	errAheadFull = errors.New("too many partitions are on their way here")
)

const (
	// aheadKeep is how long what was sent ahead is kept for the move to happen.
	aheadKeep = 30 * time.Second
	// aheadRest is what the new owner may have to replay itself, in bytes.
	aheadRest = 64 << 10
	// maxAhead bounds the partitions on their way to one node.
	maxAhead = 128
)

// ahead is a shard that is loaded before its partition comes here.
type ahead[M Machine] struct {
	end *time.Timer // forgets it; guarded by Shards.mu

	mu   sync.Mutex
	load *loading[M] // nil: nothing yet, taken, or not to be used
	live int64
}

// take is what was loaded and the size of its live records; nil if there is nothing.
func (a *ahead[M]) take(p *partition.Partition) (*loading[M], int64) {
	if a == nil {
		return nil, 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.load
	a.load = nil // a piece that comes late must find nothing
	if l == nil || l.next > p.End() {
		return nil, 0
	}
	l.part = p
	return l, a.live
}

// TakeAhead replays a piece of the log of a partition that is about to move here. An
// error means that its sender may as well stop, or begin anew with a first piece.
func (s *Shards[M]) TakeAhead(piece Piece) error {
	id, err := s.expected(piece)
	if err != nil {
		return err
	}
	a, err := s.aheadOf(piece)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if piece.First {
		a.load = &loading[M]{cfg: &s.cfg, id: id}
		a.load.restart(piece.From)
	}
	if a.load == nil || a.load.next != piece.From {
		return fmt.Errorf("%w: %s from offset %d", ErrNotAhead, id, piece.From)
	}
	a.live = piece.Live
	if err = a.load.replayRecords(commitlog.NewRecords([][]byte{piece.Batches}, nil)); err != nil {
		a.load = nil
	}
	return err
}

// expected checks that a piece is from the owner of a partition of the topic.
func (s *Shards[M]) expected(piece Piece) (commitlog.ID, error) {
	p, ok := s.cfg.Image().Partition(piece.Topic, piece.Partition)
	t, is := s.topic()
	if !ok || !is || t.ID != piece.Topic || p.Epoch != piece.Epoch {
		return commitlog.ID{}, fmt.Errorf("%w: partition %d at epoch %d", ErrNotAhead, piece.Partition, piece.Epoch)
	}
	return p.ID(), nil
}

// aheadOf finds or makes the place of a piece.
func (s *Shards[M]) aheadOf(piece Piece) (*ahead[M], error) {
	k := shardKey{piece.Topic, piece.Partition}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.ahead[k]
	switch {
	case s.closed || s.open[k] != nil:
		return nil, fmt.Errorf("%w: partition %d", ErrNotAhead, piece.Partition)
	case a != nil:
		a.end.Reset(aheadKeep)
		return a, nil
	case len(s.ahead) == maxAhead:
		return nil, errAheadFull
	}
	a = new(ahead[M])
	a.end = time.AfterFunc(aheadKeep, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dropAhead(k, a)
	})
	s.ahead[k] = a
	return a, nil
}

// dropAhead forgets what was sent ahead, if it is still that. mu is held.
func (s *Shards[M]) dropAhead(k shardKey, a *ahead[M]) {
	if a != nil && s.ahead[k] == a {
		a.end.Stop()
		delete(s.ahead, k)
	}
}

// Long says whether a partition's log is so long that it should be sent ahead of a
// move. Of partitions that this node does not have it is not.
func (s *Shards[M]) Long(topic metadata.TopicID, number int32) bool {
	sh := s.shard(shardKey{topic, number})
	return sh != nil && sh.part.Bytes() >= s.cfg.AheadBytes
}

// SendAhead gives send the log of a partition of this node in pieces, until little is
// left to send. send must not keep a piece. The partition may move whatever comes of it:
// an error, of send, ctx or the log, only says that its next owner will take longer.
func (s *Shards[M]) SendAhead(ctx context.Context, topic metadata.TopicID, number int32, send func(context.Context, Piece) error) error {
	sh := s.shard(shardKey{topic, number})
	if sh == nil {
		return fmt.Errorf("%w: partition %d", ErrNotCoordinator, number)
	}
	piece := Piece{Topic: topic, Partition: number, Epoch: sh.part.Epoch(), First: true, From: sh.part.Start()}
	for {
		next, err := sh.read(ctx, &piece)
		switch {
		case errors.Is(err, commitlog.ErrOffsetOutOfRange) && ctx.Err() == nil:
			// The log was compacted meanwhile: all that is live is behind its new start.
			piece.First, piece.From = true, sh.part.Start()
			pause(ctx, retryAppend)
			continue
		case err != nil:
			return fmt.Errorf("send partition %d ahead: %w", number, err)
		case len(piece.Batches) > 0:
			sh.mu.Lock()
			piece.Live = sh.compact.live
			sh.mu.Unlock()
			if err := send(ctx, piece); err != nil {
				return fmt.Errorf("send partition %d ahead: %w", number, err)
			}
			piece.First, piece.From = false, next
		}
		if len(piece.Batches) < aheadRest {
			return nil
		}
	}
}

// read reads whole batches from where the piece begins, and says where they end.
func (sh *shard[M]) read(ctx context.Context, piece *Piece) (next commitlog.Offset, err error) {
	piece.Batches = piece.Batches[:0]
	next = piece.From
	for len(piece.Batches) < loadBytes/2 {
		got, err := sh.part.Read(ctx, next, partition.ReadOptions{MaxBytes: loadBytes, MinOne: true})
		if err != nil {
			return next, err
		}
		from := next
		for _, buf := range got.Records.Bufs {
			piece.Batches = append(piece.Batches, buf...)
		}
		for rest := piece.Batches[len(piece.Batches)-got.Records.Bytes:]; len(rest) > 0; {
			var b commitlog.Batch
			if b, rest, err = commitlog.SplitBatch(rest); err != nil {
				break
			}
			next = b.LastOffset() + 1
		}
		got.Records.Release()
		if err != nil || next == from {
			return next, err
		}
	}
	return next, nil
}
