package group

import "time"

// upgrade makes a consumer group of a classic one with members, who go on by their
// protocol.
func (m *Machine) upgrade(_ time.Time, g *Group, _ *classicGroup) (*consumerGroup, *refusal) {
	return nil, notConsumer(g.id)
}

// downgrade makes a classic group of a consumer group whose members all use the
// classic protocol.
func (m *Machine) downgrade(time.Time, *consumerGroup) {}
