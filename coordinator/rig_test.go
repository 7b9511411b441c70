package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ponor/commitlog"
	"ponor/commitlog/memlog"
	"ponor/coordinator"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/partition"
)

// machine is the state of a test: values by key, calls that wait for a value, and
// values that end.
type machine struct {
	values map[string]string
	waits  map[string][]func(string)
	ends   map[string]time.Time
	loaded bool
	// replays is called before every Replay, if set.
	replays func()
}

func newMachine(int32) *machine {
	return &machine{values: map[string]string{}, waits: map[string][]func(string){}, ends: map[string]time.Time{}}
}

func (m *machine) Replay(r coordinator.Record, _, _ int64) error {
	if m.replays != nil {
		m.replays()
	}
	switch {
	case m.loaded:
		return errors.New("replay after Loaded")
	case string(r.Key) == "poison":
		return errors.New("poison")
	case string(r.Key) == "panic":
		panic("replay")
	case r.Value == nil:
		delete(m.values, string(r.Key))
	default:
		m.values[string(r.Key)] = string(r.Value)
	}
	return nil
}

func (m *machine) Loaded(time.Time) { m.loaded = true }

func (m *machine) Next() (next time.Time) {
	for _, at := range m.ends {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

func (m *machine) Tick(now time.Time) (out []coordinator.Record) {
	for k, at := range m.ends {
		if !now.Before(at) {
			delete(m.ends, k)
			out = append(out, m.set(k, "")...)
		}
	}
	return out
}

func (m *machine) Delay(d time.Duration) {
	for k, at := range m.ends {
		m.ends[k] = at.Add(d)
	}
}

func (m *machine) Live(yield func(coordinator.Record) bool) {
	var key, value []byte // which are the machine's again after yield
	for k, v := range m.values {
		key, value = append(key[:0], k...), append(value[:0], v...)
		if !yield(coordinator.Record{Key: key, Value: value}) {
			return
		}
	}
}

// set changes a value, "" removes it, and answers who waits for that.
func (m *machine) set(key, value string) []coordinator.Record {
	r := coordinator.Record{Key: []byte(key), Value: []byte(value)}
	m.values[key] = value
	if value == "" {
		delete(m.values, key)
		r.Value = nil
	}
	for _, reply := range m.waits[key] {
		reply(value)
	}
	delete(m.waits, key)
	return []coordinator.Record{r}
}

const topicName = "__state"

// rig is one partition of an internal topic over a medium that outlives owners.
type rig struct {
	t      testing.TB
	store  *memlog.Store
	img    *metadata.Image
	id     commitlog.ID
	shards *coordinator.Shards[*machine]

	mu    sync.Mutex
	epoch commitlog.Epoch
	part  *partition.Partition
	proof error
	asked int // proofs
}

func newRig(t testing.TB, store memlog.Config, tune ...func(*coordinator.Config[*machine])) *rig {
	r := &rig{t: t, store: memlog.New(store), img: metadata.Empty()}
	r.apply(&metadatapb.Command{Body: &metadatapb.Command_InitCluster{InitCluster: &metadatapb.InitCluster{ClusterId: strings.Repeat("A", 22), Generation: 1}}})
	reg := r.apply(&metadatapb.Command{Body: &metadatapb.Command_RegisterBroker{RegisterBroker: &metadatapb.RegisterBroker{
		Broker: 1, Nonce: make([]byte, metadata.NonceBytes), Endpoints: []*metadatapb.Endpoint{{Name: "PLAINTEXT", Host: "h", Port: 1, Security: "PLAINTEXT"}}}}})
	topic := metadata.TopicID{1, 15: 1}
	r.apply(&metadatapb.Command{Body: &metadatapb.Command_CreateTopic{CreateTopic: &metadatapb.CreateTopic{Name: topicName, TopicId: topic[:], Internal: true,
		Configs:    map[string]string{"cleanup.policy": "compact"},
		Partitions: []*metadatapb.PartitionSpec{{Replicas: []int32{1}, Owner: reg.Incarnation.Proto()}}}}})
	p, _ := r.img.Partition(topic, 0)
	r.id = p.ID()
	cfg := coordinator.Config[*machine]{Topic: topicName, New: newMachine, Image: func() *metadata.Image { return r.img }, Partitions: r}
	for _, f := range tune {
		f(&cfg)
	}
	r.shards = coordinator.New(cfg)
	t.Cleanup(func() {
		r.store.Release()
		r.close()
		r.shards.Close()
	})
	return r
}

func (r *rig) apply(cmd *metadatapb.Command) metadata.Result {
	r.t.Helper()
	img, results := metadata.Apply(r.img, r.img.Index()+1, metadata.NewEntry(cmd))
	if results[0].Err != nil {
		r.t.Fatal(results[0].Err)
	}
	r.img = img
	return results[0]
}

// open has the partition opened by its next owner, which is this node again.
func (r *rig) open() {
	r.t.Helper()
	r.mu.Lock()
	r.epoch++
	epoch := r.epoch
	r.mu.Unlock()
	p, err := partition.Open(r.t.Context(), partition.Config{ID: r.id, Epoch: epoch, Store: r.store,
		Settings: func() metadata.TopicSettings { return r.img.TopicSettings(topicName) },
		Host:     &partition.Host{Proof: r, Closed: r.shards.Closed, Owns: r.owns}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.shards.Opened(p)
	r.mu.Lock()
	r.part = p
	r.mu.Unlock()
}

// owns says whether nobody opened the partition after that epoch.
func (r *rig) owns(_ metadata.TopicID, _ int32, epoch commitlog.Epoch) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return epoch == r.epoch
}

// close gives the partition up.
func (r *rig) close() {
	r.mu.Lock()
	p := r.part
	r.part = nil
	r.mu.Unlock()
	if p != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.Close(ctx) // what is not durable is lost
	}
}

func (r *rig) partition() *partition.Partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.part
}

// Await is coordinator.Partitions.
func (r *rig) Await(context.Context, metadata.TopicID, int32) (*partition.Partition, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.part == nil {
		return nil, fmt.Errorf("%w: it is elsewhere", partition.ErrNotLeader)
	}
	return r.part, nil
}

// CatchUp is coordinator.Partitions.
func (r *rig) CatchUp(context.Context) error { return nil }

// ProvenSince and Prove are partition.Proof.
func (r *rig) ProvenSince(time.Time) bool { return false }

func (r *rig) Prove(context.Context, time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return r.proof
}

func (r *rig) setProof(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proof = err
}

func (r *rig) proofs() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

func (r *rig) set(key, value string) error {
	return r.shards.Do(r.t.Context(), key, time.Now(), func(m *machine, _ time.Time) []coordinator.Record { return m.set(key, value) })
}

// get reads a value.
func (r *rig) get(key string) (value string, err error) {
	err = r.shards.Do(r.t.Context(), key, time.Now(), func(m *machine, _ time.Time) []coordinator.Record {
		value = m.values[key]
		return nil
	})
	return value, err
}

// wait waits until somebody sets the value.
func (r *rig) wait(ctx context.Context, key string) (string, error) {
	return coordinator.Ask(ctx, r.shards, key, time.Now(), func(m *machine, _ time.Time, reply func(string)) []coordinator.Record {
		m.waits[key] = append(m.waits[key], reply)
		return nil
	})
}

// state is a copy of all values.
func (r *rig) state() map[string]string {
	r.t.Helper()
	var out map[string]string
	err := r.shards.Do(r.t.Context(), "", time.Now(), func(m *machine, _ time.Time) []coordinator.Record {
		out = maps.Clone(m.values)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// later runs f beside the test; the result is there once it has ended.
func later(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// pending fails if a call of later has ended when all there is to do is done.
func pending(t testing.TB, what string, done <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("%s ended too early: %v", what, err)
	default:
	}
}

// ended fails unless a call of later has ended like this.
func ended(t testing.TB, what string, done <-chan error, want error) {
	t.Helper()
	if err := <-done; !errors.Is(err, want) || (want == nil) != (err == nil) {
		t.Fatalf("%s ended with %v, want %v", what, err, want)
	}
}

// absent are partitions that are not here.
type absent struct{ err error }

func (a absent) Await(context.Context, metadata.TopicID, int32) (*partition.Partition, error) {
	return nil, a.err
}

// CatchUp is coordinator.Partitions.
func (a absent) CatchUp(context.Context) error { return nil }
