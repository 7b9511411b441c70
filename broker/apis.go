package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
	"ponor/rpc"
)

// call is one request on its way through a handler.
type call struct {
	*rpc.Request
	// listener is the name of the listener it came in on, whose endpoints are
	// what this client can reach.
	listener string
}

// api is one row of the table: the versions served, and who serves them.
type api struct {
	key, min, max int16
	// limit is the frame limit in bytes; zero is package rpc's default.
	limit int
	// handle serves a request that kmsg decodes.
	handle func(b *Broker, ctx context.Context, c call) kmsg.Response
	// serve is used instead by what encodes its own response.
	serve func(b *Broker, ctx context.Context, c call) rpc.Response
	// begin is used instead by Produce; see rpc.API.Begin.
	begin func(b *Broker, ctx context.Context, c call) func(context.Context) rpc.Response
	// advertiseZero: see Produce.
	advertiseZero bool
}

// typed adapts a handler of one kmsg request type.
func typed[Q kmsg.Request](f func(*Broker, context.Context, call, Q) kmsg.Response) func(*Broker, context.Context, call) kmsg.Response {
	return func(b *Broker, ctx context.Context, c call) kmsg.Response {
		return f(b, ctx, c, c.Body.(Q))
	}
}

// adminLimit is the frame limit of requests that may name every topic of a
// large cluster.
const adminLimit = 16 << 20

// table is the protocol coverage: Kafka 4.4's floor and ceiling for each key
// (KIP-896 removed what is below). A key that is absent here is absent from
// ApiVersions too, and clients do without it; one that is present and errs
// breaks them.
func table(cfg Config) []api {
	return []api{
		{key: 0, min: 3, max: 13, begin: (*Broker).beginProduce, limit: cfg.ProduceLimit,
			// librdkafka before 2.8 compresses only if version 0 is in the
			// range; versions 0 to 2 are still refused (KAFKA-18659).
			advertiseZero: true},
		{key: 1, min: 4, max: 18, serve: (*Broker).fetch, limit: adminLimit},
		{key: 2, min: 1, max: 11, handle: typed((*Broker).listOffsets), limit: adminLimit},
		{key: 3, min: 0, max: 13, handle: typed((*Broker).metadata), limit: adminLimit},
		{key: 8, min: 2, max: 10, handle: typed((*Broker).offsetCommit), limit: adminLimit},
		{key: 9, min: 1, max: 10, handle: typed((*Broker).offsetFetch), limit: adminLimit},
		{key: 10, min: 0, max: 6, handle: typed((*Broker).findCoordinator)},
		{key: 11, min: 0, max: 9, handle: typed((*Broker).joinGroup)},
		{key: 12, min: 0, max: 4, serve: (*Broker).heartbeat},
		{key: 13, min: 0, max: 5, handle: typed((*Broker).leaveGroup)},
		{key: 14, min: 0, max: 5, handle: typed((*Broker).syncGroup), limit: groupLimit},
		{key: 15, min: 0, max: 6, handle: typed((*Broker).describeGroups), limit: adminLimit},
		{key: 16, min: 0, max: 5, handle: typed((*Broker).listGroups)},
		{key: 18, min: 0, max: 5, handle: typed((*Broker).apiVersions)},
		{key: 19, min: 2, max: 7, handle: typed((*Broker).createTopics), limit: adminLimit},
		{key: 20, min: 1, max: 6, handle: typed((*Broker).deleteTopics), limit: adminLimit},
		{key: 21, min: 0, max: 2, handle: typed((*Broker).deleteRecords), limit: adminLimit},
		{key: 22, min: 0, max: 5, handle: typed((*Broker).initProducerID)},
		{key: 23, min: 2, max: 4, handle: typed((*Broker).offsetForLeaderEpoch), limit: adminLimit},
		{key: 32, min: 1, max: 4, handle: typed((*Broker).describeConfigs), limit: adminLimit},
		{key: 33, min: 0, max: 2, handle: typed((*Broker).alterConfigs), limit: adminLimit},
		{key: 34, min: 1, max: 2, handle: typed((*Broker).alterReplicaLogDirs), limit: adminLimit},
		{key: 35, min: 1, max: 5, handle: typed((*Broker).describeLogDirs), limit: adminLimit},
		{key: 37, min: 0, max: 3, handle: typed((*Broker).createPartitions), limit: adminLimit},
		{key: 42, min: 0, max: 3, handle: typed((*Broker).deleteGroups), limit: adminLimit},
		{key: 43, min: 0, max: 2, handle: typed((*Broker).electLeaders), limit: adminLimit},
		{key: 44, min: 0, max: 1, handle: typed((*Broker).incrementalAlterConfigs), limit: adminLimit},
		{key: 45, min: 0, max: 1, handle: typed((*Broker).alterPartitionReassignments), limit: adminLimit},
		{key: 46, min: 0, max: 0, handle: typed((*Broker).listPartitionReassignments), limit: adminLimit},
		{key: 47, min: 0, max: 0, handle: typed((*Broker).offsetDelete), limit: adminLimit},
		{key: 55, min: 0, max: 2, handle: typed((*Broker).describeQuorum)},
		{key: 60, min: 0, max: 2, handle: typed((*Broker).describeCluster)},
		{key: 64, min: 0, max: 0, handle: typed((*Broker).unregisterBroker)},
		{key: 68, min: 0, max: 1, handle: typed((*Broker).consumerGroupHeartbeat), limit: adminLimit},
		{key: 69, min: 0, max: 1, handle: typed((*Broker).consumerGroupDescribe), limit: adminLimit},
		{key: 74, min: 0, max: 1, handle: typed((*Broker).listConfigResources)},
		{key: 75, min: 0, max: 0, handle: typed((*Broker).describeTopicPartitions), limit: adminLimit},
		{key: 80, min: 0, max: 1, handle: typed((*Broker).addRaftVoter)},
		{key: 81, min: 0, max: 0, handle: typed((*Broker).removeRaftVoter)},
	}
}

// APIs is the table for a server on the named listener: the endpoints of that
// name are what its clients are told. "" names every broker's first endpoint.
func (b *Broker) APIs(listener string) []rpc.API {
	rows := table(b.cfg)
	apis := make([]rpc.API, 0, len(rows))
	for _, row := range rows {
		a := rpc.API{Key: row.key, Min: row.min, Max: row.max, Limit: row.limit, AdvertiseZero: row.advertiseZero}
		switch {
		case row.begin != nil:
			a.Raw = true
			a.Begin = func(ctx context.Context, r *rpc.Request) func(context.Context) rpc.Response {
				return row.begin(b, ctx, call{r, listener})
			}
		case row.serve != nil:
			a.Handle = func(ctx context.Context, r *rpc.Request) rpc.Response {
				return row.serve(b, ctx, call{r, listener})
			}
		default:
			a.Handle = func(ctx context.Context, r *rpc.Request) rpc.Response {
				return rpc.Response{Body: row.handle(b, ctx, call{r, listener})}
			}
		}
		apis = append(apis, a)
	}
	return apis
}

// image is the cluster state that a request is answered from (B5).
func (b *Broker) image() *metadata.Image { return b.cfg.Meta.Image() }

// answer makes the response of req's version with its defaults.
func answer[R kmsg.Response](req kmsg.Request) R {
	resp := req.ResponseKind().(R)
	if d, ok := any(resp).(interface{ Default() }); ok {
		d.Default()
	}
	return resp
}
