package controller

import (
	"bytes"
	"context"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

// images holds the one image of this process and the newest entries that made
// it. Two sources bring records, the node's own Raft state machine and the
// leader's stream; whichever has the next one first advances the image, and a
// record at or below its index is skipped, so both are harmless together (K1).
//
// Readers load an immutable snapshot; writers hold mu, and only compute under
// it.
type images struct {
	state atomic.Pointer[imageState]
	// observe sees every entry that advances the image, in order; installed is
	// called before a snapshot replaces it; advanced sees the new image after
	// every change, before those who wait for one, with the entry that made it and
	// its results, nil if a snapshot did. All are called under mu and must be quick.
	observe   func(*metadatapb.Entry, []metadata.Result)
	installed func()
	advanced  func(*metadata.Image, *metadatapb.Entry, []metadata.Result)

	mu struct {
		sync.Mutex
		tail      []tailEntry
		tailBytes int
		// low: every entry above it, up to the image's index, is in tail.
		low metadata.Index
	}
	tailLimit int
	count     counts // of everything around it; here, because all of it has the images
}

type imageState struct {
	img  *metadata.Image
	next chan struct{} // closed when a newer state is stored
}

type tailEntry struct {
	index metadata.Index
	data  []byte
}

func newImages(tailLimit int) *images {
	s := &images{
		tailLimit: tailLimit,
		observe:   func(*metadatapb.Entry, []metadata.Result) {},
		installed: func() {},
		advanced:  func(*metadata.Image, *metadatapb.Entry, []metadata.Result) {},
	}
	s.state.Store(&imageState{img: metadata.Empty(), next: make(chan struct{})})
	return s
}

func (s *images) image() *metadata.Image { return s.state.Load().img }

func (s *images) changed() <-chan struct{} { return s.state.Load().next }

// wait returns when the image is at or above index.
func (s *images) wait(ctx context.Context, index metadata.Index) error {
	for {
		st := s.state.Load()
		if st.img.Index() >= index {
			return nil
		}
		select {
		case <-st.next:
		case <-ctx.Done():
			return fmt.Errorf("wait for metadata index %d, at %d: %w", index, st.img.Index(), ctx.Err())
		}
	}
}

// apply advances the image by one entry. results is nil when the image had it
// already; then the bytes must be the same as those that it was made of.
func (s *images) apply(index metadata.Index, data []byte) ([]metadata.Result, error) {
	if index <= s.image().Index() {
		return nil, s.check(index, data)
	}
	e, err := metadata.DecodeEntry(data)
	if err != nil {
		return nil, fmt.Errorf("apply metadata entry %d: %w", index, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.state.Load()
	if index <= old.img.Index() {
		return nil, s.checkLocked(index, data)
	}
	img, results := metadata.Apply(old.img, index, e)
	s.mu.tail = append(s.mu.tail, tailEntry{index: index, data: data})
	s.mu.tailBytes += len(data)
	s.trimLocked()
	s.observe(e, results)
	s.publishLocked(old, img, e, results)
	return results, nil
}

// install replaces the image by a snapshot if that is newer (epoch-1).
func (s *images) install(img *metadata.Image) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.state.Load()
	if !img.Newer(old.img) {
		return nil
	}
	if id := old.img.ClusterID(); id != "" && id != img.ClusterID() {
		return fmt.Errorf("install snapshot of cluster %q over cluster %q: %w", img.ClusterID(), id, ErrWrongCluster)
	}
	s.installed()
	s.mu.tail, s.mu.tailBytes, s.mu.low = nil, 0, img.Index()
	s.publishLocked(old, img, nil, nil)
	return nil
}

func (s *images) publishLocked(old *imageState, img *metadata.Image, e *metadatapb.Entry, results []metadata.Result) {
	s.state.Store(&imageState{img: img, next: make(chan struct{})})
	s.advanced(img, e, results)
	close(old.next)
}

// trimLocked forgets the oldest half when the tail is too big, so that the
// copying is paid once per many entries.
func (s *images) trimLocked() {
	if s.mu.tailBytes <= s.tailLimit {
		return
	}
	n := 0
	for n < len(s.mu.tail)-1 && s.mu.tailBytes > s.tailLimit/2 {
		s.mu.tailBytes -= len(s.mu.tail[n].data)
		s.mu.low = s.mu.tail[n].index
		n++
	}
	s.mu.tail = append([]tailEntry(nil), s.mu.tail[n:]...)
}

// since returns entries above after, at most maxBytes of them (but one at
// least), and the image they lead to or beyond. ok is false when some are gone
// and only a snapshot helps.
func (s *images) since(after metadata.Index, maxBytes int) (entries []tailEntry, img *metadata.Image, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	img = s.state.Load().img
	if after < s.mu.low {
		return nil, img, false
	}
	i := sort.Search(len(s.mu.tail), func(i int) bool { return s.mu.tail[i].index > after })
	j, n := i, 0
	for j < len(s.mu.tail) && (j == i || n+len(s.mu.tail[j].data) <= maxBytes) {
		n += len(s.mu.tail[j].data)
		j++
	}
	return s.mu.tail[i:j:j], img, true
}

// check compares an entry that the image already holds with what it was made
// of, where that is still known. It is how a node notices on its own that the
// quorum's log and the leader's stream differ (K2).
func (s *images) check(index metadata.Index, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkLocked(index, data)
}

func (s *images) checkLocked(index metadata.Index, data []byte) error {
	i := sort.Search(len(s.mu.tail), func(i int) bool { return s.mu.tail[i].index >= index })
	if i == len(s.mu.tail) || s.mu.tail[i].index != index || bytes.Equal(s.mu.tail[i].data, data) {
		return nil
	}
	return fmt.Errorf("metadata entry %d differs between the Raft log and the leader's stream: %w", index, ErrDiverged)
}
