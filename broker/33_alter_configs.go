package broker

// AlterConfigs v0-2: replaces all overrides of a resource by those given
// (KIP-133). Deprecated in favour of key 44, still sent by older tools.
//
// Version notes:
//   v2 flexible

import (
	"context"
	"log/slog"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/controller"
	"ponor/metadata"
)

func (b *Broker) alterConfigs(ctx context.Context, _ call, req *kmsg.AlterConfigsRequest) kmsg.Response {
	resp := answer[*kmsg.AlterConfigsResponse](req)
	var changes []resourceChange
	for _, rr := range req.Resources {
		c := resourceChange{kind: rr.ResourceType, name: rr.ResourceName, replace: true}
		for _, rc := range rr.Configs {
			c.ops = append(c.ops, configOp{name: rc.Name, op: kmsg.IncrementalAlterConfigOpSet, value: rc.Value})
		}
		changes = append(changes, c)
	}
	for i, err := range b.alter(ctx, changes, req.ValidateOnly) {
		ar := kmsg.NewAlterConfigsResponseResource()
		ar.ResourceType, ar.ResourceName = changes[i].kind, changes[i].name
		ar.ErrorCode, ar.ErrorMessage = codeAndMessage(err)
		resp.Resources = append(resp.Resources, ar)
	}
	return resp
}

// resourceChange is what a request wants of one resource's configs.
type resourceChange struct {
	kind    kmsg.ConfigResourceType
	name    string
	ops     []configOp
	replace bool // what ops do not name goes back to its default
}

// configOp changes one config.
type configOp struct {
	name  string
	op    kmsg.IncrementalAlterConfigOp
	value *string
}

// alter carries out changes of configs and returns one error per resource. One
// that is refused does not keep the others from being changed, as in Kafka.
func (b *Broker) alter(ctx context.Context, changes []resourceChange, validateOnly bool) []error {
	type key struct {
		kind kmsg.ConfigResourceType
		name string
	}
	count := make(map[key]int, len(changes))
	for _, c := range changes {
		count[key{c.kind, c.name}]++
	}
	errs := make([]error, len(changes))
	var send []controller.ConfigResource
	var at []int
	for i, c := range changes {
		if count[key{c.kind, c.name}] > 1 {
			errs[i] = fail(kerr.InvalidRequest, "resource %q of type %d is named twice in the request", c.name, c.kind)
			continue
		}
		if errs[i] = b.checkChange(c); errs[i] != nil {
			continue
		}
		if c.kind == kmsg.ConfigResourceTypeTopic {
			if changes[i], errs[i] = keepFixed(b.image(), c); errs[i] != nil {
				continue
			}
			c = changes[i]
		}
		if c.kind == kmsg.ConfigResourceTypeBrokerLogger {
			errs[i] = b.alterLogger(c, validateOnly)
			continue
		}
		send, at = append(send, c.forController()), append(at, i)
	}
	if len(send) == 0 {
		return errs
	}
	ctx, cancel := adminTimeout(ctx, requestTimeout)
	defer cancel()
	results, err := b.cfg.Admin.AlterConfigs(ctx, send, validateOnly)
	for k, i := range at {
		if err != nil {
			errs[i] = unknownOutcome(err)
		} else {
			errs[i] = refused(results[k])
		}
	}
	return errs
}

// checkChange refuses what is wrong whatever the cluster's state. An operation
// that nobody knows must be refused here (Kafka's controller fails on it).
func (b *Broker) checkChange(c resourceChange) error {
	seen := make(map[string]bool, len(c.ops))
	for _, op := range c.ops {
		switch {
		case seen[op.name]:
			return fail(kerr.InvalidRequest, "config %q is given twice for one resource", op.name)
		case op.op < kmsg.IncrementalAlterConfigOpSet || op.op > kmsg.IncrementalAlterConfigOpSubtract:
			return fail(kerr.InvalidRequest, "operation %d on config %q is unknown; 0 sets, 1 deletes, 2 appends, 3 subtracts", op.op, op.name)
		case op.value == nil && op.op != kmsg.IncrementalAlterConfigOpDelete:
			return fail(kerr.InvalidRequest, "config %q has a null value; use the delete operation for the default", op.name)
		}
		seen[op.name] = true
	}
	switch c.kind {
	case kmsg.ConfigResourceTypeTopic:
		_, err := topicNamed(b.image(), c.name)
		return err
	case kmsg.ConfigResourceTypeBroker:
		return checkBrokerName(c.name)
	case kmsg.ConfigResourceTypeBrokerLogger:
		return b.checkSelf(c.name)
	case kmsg.ConfigResourceTypeGroupConfig:
		return checkGroupName(c.name)
	default:
		return fail(kerr.InvalidRequest, "resource type %d has no configs to alter here; 2 is a topic, 4 a broker, 8 a broker's loggers, 32 a group", c.kind)
	}
}

// keepFixed sees to it that configs which are fixed when a topic is made
// (storage.mode: where its log lies) stay as they are: a request may repeat
// their value, and replacing all others does not take them away.
func keepFixed(img *metadata.Image, c resourceChange) (resourceChange, error) {
	for _, def := range metadata.TopicConfigs() {
		if def.Dynamic {
			continue
		}
		now := topicConfig(img, c.name, nil, def)
		named := false
		for _, op := range c.ops {
			if op.name != def.Name {
				continue
			}
			named = true
			if op.op != kmsg.IncrementalAlterConfigOpSet || *op.value != now.value {
				return c, fail(kerr.InvalidConfig, "config %q is fixed when the topic is made; it is %q", def.Name, now.value)
			}
		}
		if c.replace && !named && now.source == metadata.SourceTopic {
			c.ops = append(c.ops, configOp{name: def.Name, op: kmsg.IncrementalAlterConfigOpSet, value: &now.value})
		}
	}
	return c, nil
}

// alterLogger sets the log level. It lasts until the process ends, as in Kafka.
func (b *Broker) alterLogger(c resourceChange, validateOnly bool) error {
	if c.replace {
		return fail(kerr.InvalidRequest, "loggers change by IncrementalAlterConfigs only")
	}
	for _, op := range c.ops {
		if op.name != rootLogger || b.cfg.LogLevel == nil {
			return fail(kerr.InvalidConfig, "there is no logger %q; the only one is %q", op.name, rootLogger)
		}
		level := slog.LevelInfo
		switch op.op {
		case kmsg.IncrementalAlterConfigOpSet:
			text := strings.ToUpper(*op.value)
			switch text { // log4j has levels that slog has not
			case "TRACE":
				text = "DEBUG"
			case "FATAL":
				text = "ERROR"
			}
			if err := level.UnmarshalText([]byte(text)); err != nil {
				return fail(kerr.InvalidConfig, "log level %q is unknown; use DEBUG, INFO, WARN or ERROR", *op.value)
			}
		case kmsg.IncrementalAlterConfigOpDelete:
		default:
			return fail(kerr.InvalidRequest, "a log level can be set or deleted only")
		}
		if !validateOnly {
			b.cfg.LogLevel.Set(level)
		}
	}
	return nil
}

// forController is the change in the controller's terms.
func (c resourceChange) forController() controller.ConfigResource {
	r := controller.ConfigResource{Kind: metadata.ConfigKind(c.kind), Name: c.name, ReplaceAll: c.replace}
	for _, op := range c.ops {
		change := controller.ConfigChange{Name: op.name, Op: controller.ConfigOpKind(op.op)}
		if op.value != nil {
			change.Value = *op.value
		}
		r.Changes = append(r.Changes, change)
	}
	return r
}

// checkGroupName: a group need not exist yet to have configs.
func checkGroupName(name string) error {
	if name == "" {
		return fail(kerr.InvalidRequest, "the name of a group is missing; the defaults of all are broker configs, group.consumer.*")
	}
	return nil
}

// checkBrokerName: the id of a broker, or "" for all of them.
func checkBrokerName(name string) error {
	if _, err := strconv.ParseInt(name, 10, 32); err != nil && name != "" {
		return fail(kerr.InvalidRequest, "broker id must be a number or empty for all brokers, not %q", name)
	}
	return nil
}
