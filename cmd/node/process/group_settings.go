package process

import (
	"sync/atomic"

	"ponor/broker"
	"ponor/coordinator/group"
	"ponor/metadata"
)

// groupSettings returns what the groups of this node are set to now: the broker
// configs in the newest image.
func (n *Node) groupSettings() func() group.Config {
	type read struct {
		img *metadata.Image
		cfg group.Config
	}
	var last atomic.Pointer[read]
	var newest func() group.Config
	newest = func() group.Config {
		img := n.ctl.Image()
		if r := last.Load(); r != nil && r.img == img {
			return r.cfg
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
		cfg.Newest = newest
		last.Store(&read{img, cfg})
		return cfg
	}
	return newest
}
