package controller

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"ponor/controller/controllerpb"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
)

func planConfigs(img *metadata.Image, resources []*controllerpb.ConfigResource) *plan {
	p := newPlan(len(resources))
	for i, r := range resources {
		c, err := planResource(img, r)
		if err != nil {
			p.refuse(i, err)
			continue
		}
		p.add(i, &metadatapb.Command{Body: &metadatapb.Command_AlterConfigs{AlterConfigs: c}})
	}
	return p
}

// planResource checks the changes of one resource against the config table and
// resolves appending and subtracting to plain values, which is why it runs at
// the leader.
func planResource(img *metadata.Image, r *controllerpb.ConfigResource) (*metadatapb.AlterConfigs, *Error) {
	kind := metadata.ConfigKind(r.Kind)
	if err := checkResource(img, kind, r.Name); err != nil {
		return nil, err
	}
	out := &metadatapb.AlterConfigs{Kind: r.Kind, Name: r.Name, ReplaceAll: r.ReplaceAll}
	seen := map[string]bool{}
	for _, ch := range r.Changes {
		if seen[ch.Name] {
			return nil, refuse(CodeInvalidRequest, "config %s is changed twice in one request", ch.Name)
		}
		seen[ch.Name] = true
		op, err := planChange(img, kind, r.Name, ch)
		if err != nil {
			return nil, err
		}
		out.Ops = append(out.Ops, op)
	}
	if kind == metadata.KindTopic {
		if err := checkTogether(img, r, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// checkTogether checks what the topic's overrides would be afterwards.
func checkTogether(img *metadata.Image, r *controllerpb.ConfigResource, c *metadatapb.AlterConfigs) *Error {
	before := img.Configs(metadata.KindTopic, r.Name)
	after := map[string]string{}
	if !r.ReplaceAll {
		maps.Copy(after, before)
	}
	for _, op := range c.Ops {
		if op.Remove {
			delete(after, op.Name)
		} else {
			after[op.Name] = op.Value
		}
	}
	for name := range union(before, after) {
		if d, ok := metadata.LookupTopicConfig(name); ok && !d.Dynamic && before[name] != after[name] {
			return refuse(CodeInvalidConfig, "config %s of topic %q is chosen when the topic is created and cannot be changed", name, r.Name)
		}
	}
	if err := metadata.ValidateTopicConfigs(after); err != nil {
		return refuse(CodeInvalidConfig, "%v", err)
	}
	return nil
}

func union(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func checkResource(img *metadata.Image, kind metadata.ConfigKind, name string) *Error {
	switch kind {
	case metadata.KindTopic:
		if t, ok := img.Topic(name); !ok || t.Deleting {
			return refuse(CodeUnknownTopic, "topic %q does not exist", name)
		}
	case metadata.KindBroker:
		if name == "" {
			return nil
		}
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil {
			return refuse(CodeInvalidRequest, "broker resource %q is not a node id", name)
		}
		if _, ok := img.Broker(metadata.BrokerID(id)); !ok {
			return refuse(CodeInvalidRequest, "broker %d is not registered", id)
		}
	case metadata.KindClientMetrics, metadata.KindGroup:
		if name == "" {
			return refuse(CodeInvalidRequest, "a resource of kind %d needs a name", kind)
		}
	default:
		return refuse(CodeInvalidRequest, "configs of resource kind %d cannot be changed", kind)
	}
	return nil
}

func planChange(img *metadata.Image, kind metadata.ConfigKind, resource string, ch *controllerpb.ConfigChange) (*metadatapb.ConfigOp, *Error) {
	def, known := lookup(kind, ch.Name)
	if ch.Op == controllerpb.ConfigChange_DELETE {
		// What was set once can be removed, even if it is not known any more.
		if _, set := img.Config(kind, resource, ch.Name); !known && !set {
			return nil, unknownConfig(ch.Name)
		}
		return &metadatapb.ConfigOp{Name: ch.Name, Remove: true}, nil
	}
	value := ch.Value
	if ch.Op == controllerpb.ConfigChange_APPEND || ch.Op == controllerpb.ConfigChange_SUBTRACT {
		if known && def.Type != metadata.TypeList {
			return nil, refuse(CodeInvalidConfig, "config %s is not a list, so nothing can be appended to it or subtracted from it", ch.Name)
		}
		now, set := img.Config(kind, resource, ch.Name)
		if !set {
			now = def.Default
		}
		value = editList(now, ch.Value, ch.Op == controllerpb.ConfigChange_APPEND)
	}
	if err := validate(img, kind, ch.Name, value); err != nil {
		return nil, refuse(CodeInvalidConfig, "%v", err)
	}
	return &metadatapb.ConfigOp{Name: ch.Name, Value: value}, nil
}

func lookup(kind metadata.ConfigKind, name string) (metadata.ConfigDef, bool) {
	switch kind {
	case metadata.KindTopic:
		return metadata.LookupTopicConfig(name)
	case metadata.KindBroker:
		return metadata.LookupBrokerConfig(name)
	case metadata.KindGroup:
		return metadata.LookupGroupConfig(name)
	default:
		return metadata.ConfigDef{}, false
	}
}

func validate(img *metadata.Image, kind metadata.ConfigKind, name, value string) error {
	switch kind {
	case metadata.KindTopic:
		return metadata.ValidateTopicConfig(name, value)
	case metadata.KindBroker:
		return metadata.ValidateBrokerConfig(name, value)
	case metadata.KindGroup:
		return img.ValidateGroupConfig(name, value)
	default:
		return nil
	}
}

func unknownConfig(name string) *Error {
	if near := metadata.NearestConfig(name); near != "" {
		return refuse(CodeInvalidConfig, "unknown config %q; did you mean %q?", name, near)
	}
	return refuse(CodeInvalidConfig, "unknown config %q", name)
}

// editList adds elements that are not there yet, or removes those that are.
func editList(list, change string, add bool) string {
	elements := splitList(list)
	for _, e := range splitList(change) {
		if add {
			if !slices.Contains(elements, e) {
				elements = append(elements, e)
			}
		} else {
			elements = slices.DeleteFunc(elements, func(x string) bool { return x == e })
		}
	}
	return strings.Join(elements, ",")
}

func splitList(s string) []string {
	var out []string
	for e := range strings.SplitSeq(s, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}
