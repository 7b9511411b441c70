package process

import (
	"sync/atomic"

	"ponor/broker"
	"ponor/coordinator/group"
	"ponor/metadata"
)

// groupSettings returns what the groups of this node are set to now: the broker
// configs in the newest image, and those of groups.
func (n *Node) groupSettings() func() *group.Config {
	type read struct {
		mark *metadata.Mark
		cfg  group.Config
	}
	var last atomic.Pointer[read]
	var newest func() *group.Config
	newest = func() *group.Config {
		img := n.ctl.Image()
		if r := last.Load(); r != nil && r.mark == img.ConfigsMark() {
			return &r.cfg
		}
		cfg, err := group.ConfigFrom(func(name string) (string, bool) {
			def, ok := metadata.LookupBrokerConfig(name)
			if !ok || def.NoDefault {
				return "", false
			}
			return img.BrokerConfig(n.cfg.NodeID, def)[0].Value, true
		})
		if err != nil { // every value was checked when it was set
			n.log.Error("groups go by the defaults", "err", err)
			cfg = group.Config{}
		}
		cfg.Exists = func(topic string, id [16]byte) bool { return broker.TopicExists(n.ctl.Image(), topic, id) }
		cfg.Topics = func() group.Topics { return broker.GroupTopics(n.ctl.Image()) }
		cfg.Consumer.Of = n.consumerGroupSettings
		cfg.Newest = newest
		r := &read{img.ConfigsMark(), cfg}
		last.Store(r)
		return &r.cfg
	}
	return newest
}

// consumerGroupSettings are the configs of one group.
func (n *Node) consumerGroupSettings(id string) group.ConsumerSettings {
	img := n.ctl.Image()
	return group.ConsumerSettingsFrom(func(name string) (string, bool) { return img.Config(metadata.KindGroup, id, name) })
}
