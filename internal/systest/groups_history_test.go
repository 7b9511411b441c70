package systest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/internal/systest"
)

// groupHistory is what the members of one group did, checked as they do it. Nobody's
// session expires in these tests, so that whoever was assigned a partition has it
// until it gave it back: two owners at one time are two owners in one generation.
type groupHistory struct {
	name string

	mu        sync.Mutex
	owner     map[int32]string
	fresh     map[int32]bool  // assigned, and no record of it seen since
	next      map[int32]int64 // offset that the owner reads next
	processed map[int32]int64 // every record before it was processed
	committed map[int32]int64 // largest offset whose commit was acknowledged
	assigned  map[int32]int   // how often
	gen       int32           // newest generation, of classic groups
	again     int64           // records that were processed more than once
	lost      int             // sessions that ended in an error
	observed  int             // fetches of the committed offsets
	errs      []error
}

func newGroupHistory(name string) *groupHistory {
	return &groupHistory{
		name: name, owner: map[int32]string{}, fresh: map[int32]bool{}, next: map[int32]int64{},
		processed: map[int32]int64{}, committed: map[int32]int64{}, assigned: map[int32]int{},
	}
}

// failf notes a violation. The caller holds mu.
func (h *groupHistory) failf(format string, args ...any) {
	if len(h.errs) < 20 {
		h.errs = append(h.errs, fmt.Errorf(h.name+": "+format, args...))
	}
}

// assign takes what a member was given.
func (h *groupHistory) assign(member string, parts []int32, gen int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if gen < h.gen {
		h.failf("%s is in generation %d after %d", member, gen, h.gen)
	}
	h.gen = max(h.gen, gen)
	for _, p := range parts {
		if o := h.owner[p]; o != "" {
			h.failf("partition %d is %s's and assigned to %s", p, o, member)
		}
		h.owner[p], h.fresh[p] = member, true
		h.assigned[p]++
	}
}

// revoke takes what a member gave back.
func (h *groupHistory) revoke(member string, parts []int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range parts {
		if h.owner[p] == member {
			delete(h.owner, p)
		}
	}
}

// process takes a run of records that a member polled.
func (h *groupHistory) process(member string, p int32, first, last int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.owner[p] != member:
		h.failf("%s reads partition %d, which is not its", member, p)
		return
	case !h.fresh[p] && first != h.next[p]:
		h.failf("%s reads %d of partition %d after %d", member, first, p, h.next[p]-1)
	case first > h.processed[p]:
		h.failf("%s begins partition %d at %d; nobody processed from %d on", member, p, first, h.processed[p])
	case first < h.committed[p]:
		h.failf("%s begins partition %d at %d; %d was committed", member, p, first, h.committed[p])
	}
	h.again += max(0, min(h.processed[p], last+1)-first)
	h.fresh[p], h.next[p] = false, last+1
	h.processed[p] = max(h.processed[p], last+1)
}

// commit takes the acknowledgement of a commit.
func (h *groupHistory) commit(p int32, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.committed[p] = max(h.committed[p], offset)
}

// groupOffsets fetches the committed offsets of groups with one topic. After an error
// it begins with a new client: kgo goes on asking a coordinator that it cannot dial.
type groupOffsets struct{ cl *kgo.Client }

func (a *groupOffsets) of(ctx context.Context, c *systest.Cluster, group string) (map[int32]int64, error) {
	if a.cl == nil {
		cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.Bootstrap(), ",")...), kgo.DisableClientMetrics())
		if err != nil {
			return nil, err
		}
		a.cl = cl
	}
	offsets, err := kadm.NewClient(a.cl).FetchOffsets(ctx, group)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil {
		a.close()
		return nil, err
	}
	of := map[int32]int64{}
	offsets.Each(func(o kadm.OffsetResponse) { of[o.Partition] = o.At })
	return of, nil
}

func (a *groupOffsets) close() {
	if a.cl != nil {
		a.cl.Close()
	}
	a.cl = nil
}
