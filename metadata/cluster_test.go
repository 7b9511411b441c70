package metadata_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

func initCluster(id string, generation uint64) *pb {
	return &pb{Body: &metadatapb.Command_InitCluster{InitCluster: &metadatapb.InitCluster{ClusterId: id, Generation: generation}}}
}

func TestInitClusterComesFirstAndOnce(t *testing.T) {
	w := &world{t: t, img: metadata.Empty(), seq: make(map[inc]uint64)}
	w.no(metadata.ErrNotInitialized, register(1, 1))
	w.no(metadata.ErrNotInitialized, noop())
	w.no(metadata.ErrInvalid, initCluster("short", 1))
	w.no(metadata.ErrInvalid, initCluster(clusterID, 0))
	first := initCluster(clusterID, 3)
	first.GetInitCluster().Features = []*metadatapb.SnapFeature{{Name: "group.version", Level: 1}}
	w.ok(first)
	w.no(metadata.ErrAlreadyInitialized, initCluster(clusterID, 4))
	if w.img.ClusterID() != clusterID || w.img.Generation() != 3 {
		t.Fatal("identity")
	}
	for name, level := range map[string]int32{"metadata.version": 33, "kraft.version": 1, "group.version": 1, "none": 0} {
		if got := w.img.Feature(name); got != level {
			t.Errorf("%s is at %d, want %d", name, got, level)
		}
	}
}

func setFeature(name string, level int32) *pb {
	return &pb{Body: &metadatapb.Command_SetFeature{SetFeature: &metadatapb.SetFeature{Name: name, Level: level}}}
}

func TestSetFeature(t *testing.T) {
	w := newWorld(t)
	w.ok(setFeature("transaction.version", 2))
	w.ok(setFeature("metadata.version", 34))
	w.ok(setFeature("kraft.version", 0))
	w.no(metadata.ErrInvalid, setFeature("", 1))
	w.no(metadata.ErrInvalid, setFeature("x", -1))
	w.no(metadata.ErrInvalid, setFeature("x", 40000))
	var got []string
	for name := range w.img.Features() {
		got = append(got, name)
	}
	if !slices.Equal(got, []string{"metadata.version", "transaction.version"}) {
		t.Fatalf("%v", got)
	}
}

func allocate(space metadatapb.AllocateIDs_Space, count uint64) *pb {
	return &pb{Body: &metadatapb.Command_AllocateIds{AllocateIds: &metadatapb.AllocateIDs{Space: space, Count: count}}}
}

func TestAllocatedBlocksDoNotOverlap(t *testing.T) {
	w := newWorld(t)
	if r := w.ok(allocate(metadatapb.AllocateIDs_PRODUCER, 10)); r.First != 0 {
		t.Fatalf("%+v", r)
	}
	if r := w.ok(allocate(metadatapb.AllocateIDs_PRODUCER, 1)); r.First != 10 {
		t.Fatalf("%+v", r)
	}
	if r := w.ok(allocate(metadatapb.AllocateIDs_OBJECT, 1)); r.First != 0 {
		t.Fatalf("%+v", r)
	}
	w.no(metadata.ErrInvalid, allocate(metadatapb.AllocateIDs_PRODUCER, 0))
	w.no(metadata.ErrUnsupported, allocate(9, 1))
	w.no(metadata.ErrExhausted, allocate(metadatapb.AllocateIDs_PRODUCER, math.MaxUint64))
	w.no(metadata.ErrExhausted, allocate(metadatapb.AllocateIDs_PRODUCER, math.MaxInt64-10))
	w.ok(allocate(metadatapb.AllocateIDs_PRODUCER, math.MaxInt64-11))
	w.no(metadata.ErrExhausted, allocate(metadatapb.AllocateIDs_PRODUCER, 1))
}

func TestTheFirstStoreIsTheClustersForGood(t *testing.T) {
	w := newWorld(t)
	claim := func(id string) *pb {
		return &pb{Body: &metadatapb.Command_ClaimStore{ClaimStore: &metadatapb.ClaimStore{StoreId: id}}}
	}
	w.no(metadata.ErrInvalid, claim(""))
	w.ok(claim("a"))
	w.ok(claim("a"))
	w.no(metadata.ErrOtherStore, claim("b"))
	if got := w.img.StoreID(); got != "a" {
		t.Errorf("store id %q, want a", got)
	}
	back, err := metadata.FromSnapshot(metadata.Snapshot(w.img))
	if err != nil || back.StoreID() != "a" || back.Hash() != w.img.Hash() {
		t.Errorf("after a snapshot: store id %q, %v", back.StoreID(), err)
	}
}

func TestClaimGenerationFencesWhatTheBackupHeld(t *testing.T) {
	w := newWorld(t)
	a := w.register(1, 1)
	s := w.topic("t", 1, a)
	claim := func(g uint64) *pb {
		return &pb{Body: &metadatapb.Command_ClaimGeneration{ClaimGeneration: &metadatapb.ClaimGeneration{Generation: g}}}
	}
	w.no(metadata.ErrStaleGeneration, claim(1))
	before := w.img
	w.ok(claim(5))
	if !w.img.Newer(before) {
		t.Fatal("a later generation is newer")
	}
	w.want(s[0], "1-1@0 [0,0) unsealed[1-1]")
	b := w.register(1, 2)
	w.want(s[0], "1-2@1 [0,0) unsealed[1-1]")
	old, _ := w.img.WAL(a)
	now, _ := w.img.WAL(b)
	if old.Generation != 1 || now.Generation != 5 {
		t.Fatalf("objects of %s lie under %d, of %s under %d", a, old.Generation, b, now.Generation)
	}
}

func TestRegisterBrokerRefusesNonsense(t *testing.T) {
	w := newWorld(t)
	for what, change := range map[string]func(*metadatapb.RegisterBroker){
		"negative id":      func(c *metadatapb.RegisterBroker) { c.Broker = -1 },
		"short nonce":      func(c *metadatapb.RegisterBroker) { c.Nonce = c.Nonce[1:] },
		"no nonce":         func(c *metadatapb.RegisterBroker) { c.Nonce = nil },
		"long zone":        func(c *metadatapb.RegisterBroker) { c.Zone = strings.Repeat("z", 256) },
		"port":             func(c *metadatapb.RegisterBroker) { c.Endpoints[0].Port = 65536 },
		"listener twice":   func(c *metadatapb.RegisterBroker) { c.Endpoints = append(c.Endpoints, c.Endpoints[0]) },
		"endless listener": func(c *metadatapb.RegisterBroker) { c.Endpoints = make([]*metadatapb.Endpoint, 17) },
	} {
		c := register(1, 1)
		change(c.GetRegisterBroker())
		t.Log(what)
		w.no(metadata.ErrInvalid, c)
	}
	w.register(0, 1) // 0 is a broker id like any other
	b, ok := w.img.Broker(0)
	if ep, found := b.Endpoint("PLAINTEXT"); !ok || !found || ep.Port != 9092 || b.Zone != "z" || b.Fenced {
		t.Fatalf("%+v", b)
	}
}

func unregister(id int32) *pb {
	return &pb{Body: &metadatapb.Command_UnregisterBroker{UnregisterBroker: &metadatapb.UnregisterBroker{Broker: id}}}
}

func TestUnregisterBrokerNeedsItDeadAndEmpty(t *testing.T) {
	w := newWorld(t)
	a, b := w.register(1, 1), w.register(2, 2)
	w.topic("t", 1, a)
	w.no(metadata.ErrUnknownBroker, unregister(9))
	w.no(metadata.ErrBrokerInUse, unregister(1))
	w.no(metadata.ErrBrokerInUse, unregister(2)) // it owns nothing, but lives
	w.ok(fence(a, b))
	w.no(metadata.ErrBrokerInUse, unregister(1)) // its partition has nobody else yet
	w.ok(fence(a, b, assign(1, 0, b)))
	w.ok(unregister(1))
	if _, ok := w.img.Broker(1); ok {
		t.Fatal("still registered")
	}
	if wal, ok := w.img.WAL(a); !ok || wal.State != metadata.Fenced {
		t.Fatal("the WAL has to stay until it is sealed, and after")
	}
	if again := w.register(1, 1); again == a {
		t.Fatal("an incarnation came back")
	}
}

func brokerState(id int32, cordoned, draining bool) *pb {
	return &pb{Body: &metadatapb.Command_BrokerState{BrokerState: &metadatapb.BrokerState{Broker: id, Cordoned: cordoned, Draining: draining}}}
}

func TestBrokerStateOutlivesTheProcessAsFarAsItShould(t *testing.T) {
	w := newWorld(t)
	w.register(1, 1)
	w.no(metadata.ErrUnknownBroker, brokerState(2, true, true))
	w.ok(brokerState(1, true, true))
	w.register(1, 2)
	if b, _ := w.img.Broker(1); !b.Cordoned || b.Draining {
		t.Fatalf("a restart ends draining and not cordoning: %+v", b)
	}
}

func TestCreateTopicRefusesNonsense(t *testing.T) {
	w := newWorld(t)
	a := w.register(1, 1)
	w.register(2, 2)
	for what, change := range map[string]func(*metadatapb.CreateTopic){
		"empty name":          func(c *metadatapb.CreateTopic) { c.Name = "" },
		"dots":                func(c *metadatapb.CreateTopic) { c.Name = ".." },
		"slash":               func(c *metadatapb.CreateTopic) { c.Name = "a/b" },
		"long name":           func(c *metadatapb.CreateTopic) { c.Name = strings.Repeat("x", 250) },
		"zero id":             func(c *metadatapb.CreateTopic) { c.TopicId = make([]byte, 16) },
		"short id":            func(c *metadatapb.CreateTopic) { c.TopicId = c.TopicId[1:] },
		"no partitions":       func(c *metadatapb.CreateTopic) { c.Partitions = nil },
		"no replicas":         func(c *metadatapb.CreateTopic) { c.Partitions[0].Replicas = nil },
		"replica twice":       func(c *metadatapb.CreateTopic) { c.Partitions[0].Replicas = []int32{1, 1} },
		"owner not replica":   func(c *metadatapb.CreateTopic) { c.Partitions[0].Replicas = []int32{2} },
		"config with no name": func(c *metadatapb.CreateTopic) { c.Configs = map[string]string{"": "x"} },
	} {
		c := createTopic("t", 1, a)
		change(c.GetCreateTopic())
		t.Log(what)
		w.no(metadata.ErrInvalid, c)
	}
	c := createTopic("t", 1, a)
	c.GetCreateTopic().Partitions[0].Replicas = []int32{1, 7}
	w.no(metadata.ErrUnknownBroker, c)
	w.ok(createTopic(strings.Repeat("x", 249), 1, a))
	w.ok(createTopic("a.b_c", 2, a))
	w.no(metadata.ErrTopicExists, createTopic("a.b_c", 3, a))
	w.no(metadata.ErrTopicExists, createTopic("a_b.c", 3, a)) // Kafka: their metrics would be the same
	w.no(metadata.ErrTopicExists, createTopic("other", 2, a)) // the id is taken
	if _, ok := w.img.Topic("a_b.c"); ok {
		t.Fatal("a colliding name is not the topic's name")
	}
	if tp, ok := w.img.Colliding("a_b.c"); !ok || tp.Name != "a.b_c" {
		t.Fatal("Colliding")
	}
}

func TestConfigsOfANewTopicAreStoredInOrder(t *testing.T) {
	w := newWorld(t)
	a := w.register(1, 1)
	c := createTopic("t", 1, a)
	c.GetCreateTopic().Configs = make(map[string]string)
	for i := range 50 {
		c.GetCreateTopic().Configs[strings.Repeat("x", i+1)] = "1"
	}
	w.ok(c) // checks the order: a map's own would differ from node to node
	if n := len(w.img.Configs(metadata.KindTopic, "t")); n != 50 {
		t.Fatalf("%d configs", n)
	}
}

func createPartitions(id byte, from int32, owners ...inc) *pb {
	tid := topicID(id)
	c := &metadatapb.CreatePartitions{TopicId: tid[:], From: from}
	for _, o := range owners {
		c.Partitions = append(c.Partitions, &metadatapb.PartitionSpec{Replicas: []int32{int32(o.Broker)}, Owner: o.Proto()})
	}
	return &pb{Body: &metadatapb.Command_CreatePartitions{CreatePartitions: c}}
}

func TestCreatePartitionsAddsOnce(t *testing.T) {
	w := newWorld(t)
	a := w.register(1, 1)
	w.topic("t", 1, a)
	w.no(metadata.ErrConflict, createPartitions(1, 2, a))
	w.no(metadata.ErrUnknownTopic, createPartitions(9, 0, a))
	w.no(metadata.ErrInvalid, createPartitions(1, 1))
	w.ok(createPartitions(1, 1, a, a))
	w.no(metadata.ErrConflict, createPartitions(1, 1, a, a))
	if tp, _ := w.img.Topic("t"); tp.Partitions != 3 {
		t.Fatalf("%+v", tp)
	}
	if p, ok := w.img.Partition(topicID(1), 2); !ok || p.ID().String() != "t-2" || p.Stream != 3 {
		t.Fatalf("%+v", p)
	}
	for _, n := range []int32{-1, 3} {
		if _, ok := w.img.Partition(topicID(1), n); ok {
			t.Fatalf("partition %d", n)
		}
	}
}

func TestReplicasAreStoredVerbatimAndShownWithTheOwner(t *testing.T) {
	w := newWorld(t)
	a := w.register(1, 1)
	w.register(2, 2)
	w.register(3, 3)
	w.topic("t", 1, a)
	set := func(replicas, adding, removing []int32) *pb {
		tid := topicID(1)
		return &pb{Body: &metadatapb.Command_AssignReplicas{AssignReplicas: &metadatapb.AssignReplicas{
			TopicId: tid[:], Replicas: replicas, Adding: adding, Removing: removing,
		}}}
	}
	w.no(metadata.ErrInvalid, set(nil, nil, nil))
	w.no(metadata.ErrInvalid, set([]int32{1, 1}, nil, nil))
	w.no(metadata.ErrUnknownBroker, set([]int32{1, 9}, nil, nil))
	w.no(metadata.ErrInvalid, set([]int32{1}, []int32{2}, nil))
	w.no(metadata.ErrInvalid, set([]int32{1, 2}, []int32{2}, []int32{2}))
	w.no(metadata.ErrInvalid, set([]int32{1}, nil, []int32{-2}))
	gone := set([]int32{1}, nil, nil)
	gone.GetAssignReplicas().Partition = 4
	w.no(metadata.ErrUnknownPartition, gone)
	w.ok(set([]int32{3, 2}, []int32{3}, []int32{1}))
	p := w.partition(1)
	if !slices.Equal(p.Replicas, []metadata.BrokerID{3, 2, 1}) || !slices.Equal(p.Adding, []metadata.BrokerID{3}) || !slices.Equal(p.Removing, []metadata.BrokerID{1}) {
		t.Fatalf("%+v", p)
	}
	if snap := metadata.Snapshot(w.img).Topics[0].Partitions[0].Replicas; !slices.Equal(snap, []int32{3, 2}) {
		t.Fatalf("stored %v", snap)
	}
}

func TestSpellings(t *testing.T) {
	id := metadata.TopicID{1, 2, 3, 15: 0xfb}
	if got, err := metadata.ParseTopicID(id.String()); err != nil || got != id || len(id.String()) != 22 {
		t.Errorf("%s %v", got, err)
	}
	for _, bad := range []string{"", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAB", "AAAAAAAAAAAAAAAAAAAAA+"} {
		if _, err := metadata.ParseTopicID(bad); err == nil {
			t.Errorf("%q is a topic id", bad)
		}
	}
	i := inc{Broker: 3, Epoch: 17}
	if got, err := metadata.ParseIncarnation("3-17"); err != nil || got != i || i.String() != "3-17" {
		t.Errorf("%s %v", got, err)
	}
	for _, bad := range []string{"", "3", "3-0", "-3-17", "03-17", "3-17-1", "3-+17"} {
		if _, err := metadata.ParseIncarnation(bad); err == nil {
			t.Errorf("%q is an incarnation", bad)
		}
	}
	if !i.Less(inc{Broker: 1, Epoch: 18}) || i.Less(i) || i.Proto() == nil || (inc{}).Proto() != nil {
		t.Error("Less, Proto")
	}
}
