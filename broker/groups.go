package broker

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"ponor/coordinator"
	"ponor/coordinator/group"
	"ponor/metadata"
)

// Groups are the groups that this broker coordinates.
type Groups = coordinator.Shards[*group.Machine]

// groupsAtOnce bounds how many groups of one request are asked at the same time;
// each may wait for the store.
const groupsAtOnce = 16

// groupLimit is the frame limit of requests that carry the assignments of a large
// group.
const groupLimit = 16 << 20

// groupOperations: read 3, delete 6, describe 8, describe configs 10, alter
// configs 11.
const groupOperations = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11

// TopicExists says whether a topic has that name and id in img, or, if id is zero,
// the name. Groups keep no offsets of others.
func TopicExists(img *metadata.Image, name string, id metadata.TopicID) bool {
	t, ok := img.Topic(name)
	return ok && !t.Deleting && (id == metadata.TopicID{} || t.ID == id)
}

// groups are this broker's, or why there are none.
func (b *Broker) groups() (*Groups, error) {
	if b.cfg.Groups == nil {
		return nil, fmt.Errorf("%w: this broker serves no groups", coordinator.ErrUnavailable)
	}
	return b.cfg.Groups, nil
}

// onGroup runs f on the machine that keeps a group.
func (b *Broker) onGroup(ctx context.Context, c call, id string, f func(m *group.Machine, now time.Time) []coordinator.Record) error {
	groups, err := b.groups()
	if err != nil {
		return err
	}
	return groups.Do(ctx, id, c.Received, f)
}

// askGroup is onGroup for a call that may wait for other members' requests for minutes,
// in which its own is forgotten. If its connection ends meanwhile, gone is called, if it
// is not nil.
func askGroup[Q, T any](ctx context.Context, b *Broker, c call, id string, req *Q,
	f func(m *group.Machine, now time.Time, req *Q, reply func(T)) []coordinator.Record,
	gone func(m *group.Machine, now time.Time) []coordinator.Record,
) (T, error) {
	groups, err := b.groups()
	if err != nil {
		var none T
		return none, err
	}
	return coordinator.AskUntil(ctx, groups, id, c.Received, func(m *group.Machine, now time.Time, reply func(T)) []coordinator.Record {
		records := f(m, now, req, reply)
		c.Forget()
		req = nil
		return records
	}, coordinator.Until[*group.Machine]{Over: gone})
}

// caller is who sent the request, as groups show their members.
func (c call) caller() group.Caller {
	who := group.Caller{ClientID: c.ClientID}
	if c.Conn != nil {
		who.Host = "/" + hostOf(c.Conn.RemoteAddr())
	}
	return who
}

// hostOf is an address without its port.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// each runs f for 0 to n-1, some at the same time.
func each(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var all sync.WaitGroup
	tickets := make(chan struct{}, groupsAtOnce)
	for i := range n {
		tickets <- struct{}{}
		all.Go(func() {
			f(i)
			<-tickets
		})
	}
	all.Wait()
}
