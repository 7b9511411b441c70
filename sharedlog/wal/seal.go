package wal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ponor/commitlog"
	"ponor/internal/plant"
	"ponor/metadata"
	"ponor/sharedlog/objstore"
)

// ErrLost says that the store shows that slots which were durable are gone. Sealing
// below them would lose acknowledged records, so Seal refuses; an operator has
// to decide.
var ErrLost = errors.New("WAL lost slots")

// SealConfig says which WAL to seal.
type SealConfig struct {
	// Bucket, Prefix, ClusterID, Generation: as in Config.
	Bucket     objstore.Bucket
	Prefix     string
	ClusterID  string
	Generation uint64
	// Incarnation is whose WAL it is. It must be fenced in the image that Trim
	// is from (cmd-4).
	Incarnation metadata.Incarnation
	// By is the sealer's incarnation, for the fence.
	By metadata.Incarnation
	// Trim is the first slot still needed; slots below may be gone.
	Trim uint64
	// MaxInflight is the writers' window in slots, the first distance of a
	// fence ahead; default is the Bucket's.
	MaxInflight int
	// Parallel bounds concurrent reads, default 16.
	Parallel int
	// Rand gives the write id and jitter; default crypto/rand.
	Rand io.Reader
	// Logger, nil discards.
	Logger *slog.Logger
}

// Sealed is the result of Seal.
type Sealed struct {
	// End is e: the slot of the fence.
	End uint64
	// Slots are the indexes of slots Trim to End-1, in order.
	Slots []Index
}

// Seal ends the WAL of an incarnation that is gone: it reads the indexes of the
// contiguous slots from the trim on and puts a fence in the first free one
// (slot-3). It retries the store until ctx ends. Any number of sealers may work
// at once, be killed and start again: they agree on the result, because slots
// never change (slot-1) and the first fence after contiguous data is one.
//
// Errors: commitlog.ErrCorrupt or ErrUnsupported for a slot that is neither data
// of this WAL nor a fence, ErrLost (slot-5), objstore.ErrRefused and ErrUndurable,
// which another broker may not meet; else ctx's.
func Seal(ctx context.Context, cfg SealConfig) (Sealed, error) {
	res, err := newSealer(cfg).seal(ctx)
	if err != nil {
		return Sealed{}, fmt.Errorf("seal WAL of %s: %w", cfg.Incarnation, err)
	}
	return res, nil
}

func newSealer(cfg SealConfig) *sealer {
	s := &sealer{
		SealConfig: cfg, next: cfg.Trim, window: uint64(max(cfg.MaxInflight, cfg.Bucket.Kind().MaxInflight, 1)),
		id: identity{cfg.ClusterID, cfg.Generation, cfg.Incarnation}, known: map[uint64]Index{},
	}
	if s.Rand == nil {
		s.Rand = rand.Reader
	}
	s.Rand = &lockedReader{r: s.Rand}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	def(&s.Parallel, 16)
	return s
}

type sealer struct {
	SealConfig
	id     identity
	window uint64
	next   uint64 // all slots from Trim to below are data; their indexes are in known
	known  map[uint64]Index
	// durable: the writer knew all slots below to be durable, as a slot says.
	durable uint64
}

func (s *sealer) seal(ctx context.Context) (Sealed, error) {
	if err := s.readKnown(ctx); err != nil {
		return Sealed{}, err
	}
	if err := s.close(ctx); err != nil {
		return Sealed{}, err
	}
	if err := s.settle(ctx); err != nil {
		return Sealed{}, err
	}
	if err := s.checkLost(ctx); err != nil {
		return Sealed{}, err
	}
	if plant.On(plant.SealEarly) && s.next > s.Trim {
		s.next--
	}
	res := Sealed{End: s.next, Slots: make([]Index, 0, s.next-s.Trim)}
	for seq := s.Trim; seq < s.next; seq++ {
		res.Slots = append(res.Slots, s.known[seq])
	}
	return res, nil
}

// settle makes sure that what is counted outlives a power cut: what was read may
// be in another machine's page cache only (seal-2). Of most slots the writer has
// said that they are durable, and thousands of syncs would be a good part of an
// outage.
func (s *sealer) settle(ctx context.Context) error {
	from, all := max(s.durable, s.Trim), SlotPrefix(s.Prefix, s.Incarnation)
	if from+s.window < s.next {
		return s.retry(ctx, func() error { return s.Bucket.Settle(ctx, all) })
	}
	for ; from < s.next; from++ {
		key := SlotKey(s.Prefix, s.Incarnation, from)
		if err := s.retry(ctx, func() error { return s.Bucket.Settle(ctx, key) }); err != nil {
			return err
		}
	}
	return nil
}

// close fences the first free slot. A writer that is alive after all may take
// it first; after two lost races a fence further ahead stops the writer, and
// what lies below is closed in peace (seal-1).
func (s *sealer) close(ctx context.Context) error {
	for lost := 0; ; lost++ {
		fenced, err := s.fence(ctx, s.next)
		if err != nil || fenced {
			return err
		}
		if lost == 1 {
			if err := s.fenceAhead(ctx); err != nil {
				return err
			}
		}
		if err := s.readOn(ctx); err != nil {
			return err
		}
	}
}

// fenceAhead puts a fence in the way of a writer that is faster than we are.
func (s *sealer) fenceAhead(ctx context.Context) error {
	for ahead := s.window; ; ahead *= 2 {
		s.Logger.Warn("WAL grows while it is sealed, fencing ahead", "broker", s.Incarnation.String(), "object", SlotKey(s.Prefix, s.Incarnation, s.next+ahead))
		if fenced, err := s.fence(ctx, s.next+ahead); err != nil || fenced {
			return err
		}
	}
}

// fence puts a fence in slot seq. True: there is one now, ours or another
// sealer's, durably. False: the slot has data. Only PutNew decides, never a read
// alone (slot-5): an answer "exists" implies that what exists is durable.
func (s *sealer) fence(ctx context.Context, seq uint64) (fenced bool, err error) {
	h := Header{
		Kind: Fence, ClusterID: s.ClusterID, Generation: s.Generation, Incarnation: s.Incarnation,
		Seq: seq, Author: s.By, Size: HeaderBytes,
	}
	if _, err := io.ReadFull(s.Rand, h.WriteID[:]); err != nil {
		return false, fmt.Errorf("make write id: %w", err)
	}
	b := appendHeader(nil, &h)
	body := objstore.Body{Parts: [][]byte{b}, CRC32C: crc32.Checksum(b, commitlog.Castagnoli)}
	key := SlotKey(s.Prefix, s.Incarnation, seq)
	for vanished := 0; ; vanished++ {
		err := s.retry(ctx, func() error { return s.Bucket.PutNew(ctx, key, body) })
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, objstore.ErrExists) {
			return false, err
		}
		r := s.read(ctx, seq)
		switch {
		case r.err != nil:
			return false, r.err
		case r.found:
			return r.h.Kind == Fence, nil
		case vanished == maxVanished:
			return false, fmt.Errorf("slot %d exists and is not found", seq)
		}
	}
}

// complainEvery is how often a sealer that waits for its store says so.
const complainEvery = 10 * time.Second

// retry calls f until it succeeds, answers what retrying cannot change, or ctx
// ends.
func (s *sealer) retry(ctx context.Context, f func() error) error {
	var pace *backoff
	var said time.Time
	for {
		err := f()
		if err == nil || final(err) || ctx.Err() != nil {
			return err
		}
		if pace == nil || time.Since(said) >= complainEvery {
			said = time.Now()
			s.Logger.Warn("store does not answer the sealer", "broker", s.Incarnation.String(), "err", err)
		}
		if pace == nil {
			pace = newBackoff(s.Rand)
		}
		pace.wait(ctx)
	}
}

func final(err error) bool {
	for _, e := range []error{objstore.ErrExists, objstore.ErrNotFound, objstore.ErrUndurable, objstore.ErrRefused, commitlog.ErrCorrupt, ErrUnsupported, ErrLost} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// slotRead is what reading a slot gave. Not found and no error: the slot is free
// or not visible.
type slotRead struct {
	seq      uint64
	found    bool
	h        Header
	own      Index
	repeated []Index
	err      error
}

// read reads a slot. Damage counts only if it is read twice.
func (s *sealer) read(ctx context.Context, seq uint64) slotRead {
	r := slotRead{seq: seq}
	for range 2 {
		r.err = s.retry(ctx, func() (err error) {
			r.h, r.own, r.repeated, err = readSlot(ctx, s.Bucket, SlotKey(s.Prefix, s.Incarnation, seq))
			if err == nil {
				err = s.id.check(&r.h, seq)
			}
			return err
		})
		if !errors.Is(r.err, commitlog.ErrCorrupt) {
			break
		}
	}
	switch {
	case errors.Is(r.err, objstore.ErrNotFound):
		r.err = nil
	case r.err == nil:
		r.found = true
	}
	return r
}

// readAll reads many slots in parallel, in the order asked for.
func (s *sealer) readAll(ctx context.Context, seqs []uint64) []slotRead {
	out := make([]slotRead, len(seqs))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(s.Parallel, len(seqs)) {
		wg.Go(func() {
			for i := range next {
				out[i] = s.read(ctx, seqs[i])
			}
		})
	}
	for i := range seqs {
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}

// readKnown reads what a listing shows, in at most two rounds: first the slots
// that repeat others' indexes and those after the last of these, then what that
// did not prove. The listing only says where to look.
func (s *sealer) readKnown(ctx context.Context) error {
	listed, err := s.list(ctx, s.Trim)
	if err != nil || len(listed) == 0 {
		return err
	}
	last := listed[len(listed)-1]
	tail := s.Trim // slots from here on have no repeater behind them
	if up := last + 1 - (last+1)%repeatEvery; up > s.Trim {
		tail = up
	}
	var first []uint64
	for _, seq := range listed {
		if seq%repeatEvery == repeatEvery-1 || seq >= tail {
			first = append(first, seq)
		}
	}
	if err := s.learn(ctx, first); err != nil {
		return err
	}
	var rest []uint64
	for _, seq := range listed {
		if _, ok := s.known[seq]; !ok && !slices.Contains(first, seq) {
			rest = append(rest, seq)
		}
	}
	if err := s.learn(ctx, rest); err != nil {
		return err
	}
	s.advance()
	return nil
}

// learn reads slots and keeps the indexes of those that are data.
func (s *sealer) learn(ctx context.Context, seqs []uint64) error {
	for _, r := range s.readAll(ctx, seqs) {
		if r.err != nil {
			return r.err
		}
		if !r.found || r.h.Kind != Data {
			continue
		}
		s.known[r.seq] = r.own
		s.window = max(s.window, uint64(r.h.Window))
		s.durable = max(s.durable, r.h.DurableBelow)
		for _, i := range r.repeated {
			// The writer repeats what it has sent off. Only below durableBelow it
			// also knew it to be there.
			if i.Seq < r.h.DurableBelow && i.Seq >= s.Trim {
				s.known[i.Seq] = i
			}
		}
	}
	return nil
}

// advance moves next over what is known.
func (s *sealer) advance() {
	for {
		if _, ok := s.known[s.next]; !ok {
			return
		}
		s.next++
	}
}

// readOn reads from next on, a window at a time, until a slot is not data.
func (s *sealer) readOn(ctx context.Context) error {
	for {
		before := s.next
		seqs := make([]uint64, s.window)
		for i := range seqs {
			seqs[i] = s.next + uint64(i)
		}
		if err := s.learn(ctx, seqs); err != nil {
			return err
		}
		if s.advance(); s.next < before+s.window {
			return nil
		}
	}
}

// list returns the slots from seq on that the store shows, in order.
func (s *sealer) list(ctx context.Context, seq uint64) ([]uint64, error) {
	prefix := SlotPrefix(s.Prefix, s.Incarnation)
	after := ""
	if seq > 0 {
		after = SlotKey(s.Prefix, s.Incarnation, seq-1)
	}
	var out []uint64
	err := s.retry(ctx, func() error {
		out = out[:0]
		return s.Bucket.List(ctx, prefix, after, func(i objstore.Info) error {
			n, err := strconv.ParseUint(strings.TrimPrefix(i.Key, prefix), 10, 64)
			if err != nil {
				return fmt.Errorf("%w: %s is no slot", commitlog.ErrCorrupt, i.Key)
			}
			out = append(out, n)
			return nil
		})
	})
	return out, err
}

// checkLost looks for proof that slots were lost (slot-5). It lists after the
// fence is there: a writer that knew slots beyond it to be durable had got
// further than the store shows now. It also makes sure that slots of which only
// a repeated index was read are there.
func (s *sealer) checkLost(ctx context.Context) error {
	listed, err := s.list(ctx, s.Trim)
	if err != nil {
		return err
	}
	var look []uint64
	for seq := s.Trim; seq < s.next; seq++ {
		if _, ok := slices.BinarySearch(listed, seq); !ok {
			look = append(look, seq) // a listing may lag
		}
	}
	at, _ := slices.BinarySearch(listed, s.next+1)
	look = append(look, listed[at:]...)
	for _, r := range s.readAll(ctx, look) {
		switch {
		case r.err != nil:
			return r.err
		case r.seq < s.next && (!r.found || r.h.Kind != Data):
			return fmt.Errorf("%w: slot %d was durable and is gone", ErrLost, r.seq)
		case r.seq < s.next || !r.found || r.h.Kind == Fence:
			continue
		case r.h.DurableBelow > s.next:
			return fmt.Errorf("%w: slot %d is free, and slot %d says that all below %d were durable", ErrLost, s.next, r.seq, r.h.DurableBelow)
		case r.seq >= s.next+uint64(max(r.h.Window, 1)):
			return fmt.Errorf("%w: slot %d is free, and slot %d was not to be started before it was durable (window %d)", ErrLost, s.next, r.seq, r.h.Window)
		}
	}
	return nil
}
