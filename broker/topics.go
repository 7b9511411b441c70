package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"ponor/metadata"
)

// Operations that an authorizer would allow, as a bit field per Kafka's
// AclOperation codes. Without an authorizer everything is allowed.
const (
	// topicOperations: read 3, write 4, create 5, delete 6, alter 7, describe 8,
	// describe configs 10, alter configs 11.
	topicOperations = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	// clusterOperations: create 5, alter 7, describe 8, cluster action 9,
	// describe configs 10, alter configs 11, idempotent write 12.
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
	// operationsNotAsked is the default of the field.
	operationsNotAsked = -2147483648
)

// checkTopicName is Kafka's rule for topic names.
func checkTopicName(name string) error {
	if err := metadata.ValidateTopicName(name); err != nil {
		return fail(kerr.InvalidTopicException, "%v", err)
	}
	return nil
}

// topicNamed finds a topic by name. A topic that is being deleted is gone for
// clients.
func topicNamed(img *metadata.Image, name string) (metadata.Topic, error) {
	if t, ok := img.Topic(name); ok && !t.Deleting {
		return t, nil
	}
	if err := checkTopicName(name); err != nil {
		return metadata.Topic{}, err
	}
	return metadata.Topic{}, fail(kerr.UnknownTopicOrPartition, "topic %q does not exist; create it or check its name", name)
}

// topicWithID finds a topic by id.
func topicWithID(img *metadata.Image, id metadata.TopicID) (metadata.Topic, error) {
	if t, ok := img.TopicByID(id); ok && !t.Deleting {
		return t, nil
	}
	return metadata.Topic{}, fail(kerr.UnknownTopicID, "no topic has the id %s; it may have been deleted or made anew", id)
}

// liveBroker finds a broker that takes part, by id.
func liveBroker(img *metadata.Image, id metadata.BrokerID) (metadata.Broker, bool) {
	br, ok := img.Broker(id)
	return br, ok && !br.Fenced
}

// endpoint is where clients of a listener reach a broker: the endpoint of that
// name, or the first.
func endpoint(br metadata.Broker, listener string) (metadata.Endpoint, bool) {
	if listener == "" && len(br.Endpoints) > 0 {
		return br.Endpoints[0], true
	}
	return br.Endpoint(listener)
}

// controllerID is the broker that clients shall send admin requests to. Every
// broker takes them, so it is this one while it is registered: the client
// reaches it, for it just did.
func (b *Broker) controllerID(img *metadata.Image) int32 {
	self := b.cfg.Meta.Incarnation()
	if br, ok := liveBroker(img, self.Broker); ok && br.Incarnation == self {
		return int32(self.Broker)
	}
	for br := range img.Brokers() {
		if !br.Fenced {
			return int32(br.ID)
		}
	}
	return -1
}

// rack is a broker's zone as a nullable string.
func rack(br metadata.Broker) *string {
	if br.Zone == "" {
		return nil
	}
	return &br.Zone
}

// leadership is what clients see of one partition. Nothing is copied to the
// replicas of a shared topic: the list says where takeover looks first, and the
// live ones of it are shown as in sync.
type leadership struct {
	err                    *kerr.Error // nil if it has a leader
	leader, epoch          int32
	replicas, isr, offline []int32
}

// leadershipOf shows a partition. A partition whose incoming owner still opens
// it has that owner as leader, never LEADER_NOT_AVAILABLE: clients then go there
// and retry, rather than ask everyone for metadata.
func leadershipOf(img *metadata.Image, p metadata.Partition, listener string) leadership {
	l := leadership{leader: int32(p.Owner.Broker), epoch: int32(p.Epoch), replicas: make([]int32, len(p.Replicas)), offline: []int32{}}
	live := 0
	for i, id := range p.Replicas {
		l.replicas[i] = int32(id)
		if _, ok := liveBroker(img, id); ok {
			live++
		}
	}
	if l.isr = l.replicas; live < len(l.replicas) {
		l.split(img)
	}
	owner, ok := liveBroker(img, p.Owner.Broker)
	if !ok || p.Owner != owner.Incarnation {
		l.leader, l.err = -1, kerr.LeaderNotAvailable
		return l
	}
	if _, ok := endpoint(owner, listener); !ok {
		l.leader, l.err = -1, kerr.ListenerNotFound
	}
	return l
}

// split tells live replicas from dead ones; responses of large clusters are
// mostly this, so it is done only where some are dead.
func (l *leadership) split(img *metadata.Image) {
	l.isr = nil
	for _, id := range l.replicas {
		if _, ok := liveBroker(img, metadata.BrokerID(id)); ok {
			l.isr = append(l.isr, id)
		} else {
			l.offline = append(l.offline, id)
		}
	}
}
