package broker

// ListConfigResources v0-1: the names of what has configs (KIP-1000, KIP-1142).
//
// Version notes:
//   v0 lists client metrics only, of which there are none here
//   v1 types; none is all

import (
	"context"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
)

func (b *Broker) listConfigResources(_ context.Context, _ call, req *kmsg.ListConfigResourcesRequest) kmsg.Response {
	resp := answer[*kmsg.ListConfigResourcesResponse](req)
	resp.ConfigResources = []kmsg.ListConfigResourcesResponseConfigResource{}
	kinds := req.ResourceTypes
	switch {
	case req.Version == 0:
		return resp
	case len(kinds) == 0:
		kinds = []int8{2, 4, 8, 16, 32}
	}
	img := b.image()
	for _, kind := range kinds {
		var names []string
		switch kmsg.ConfigResourceType(kind) {
		case kmsg.ConfigResourceTypeTopic:
			for t := range img.Topics() {
				if !t.Deleting {
					names = append(names, t.Name)
				}
			}
		case kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger:
			for br := range img.Brokers() {
				names = append(names, strconv.Itoa(int(br.ID)))
			}
		case kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeGroupConfig:
			names = slices.Collect(img.Configured(metadata.ConfigKind(kind)))
		default:
			resp.ErrorCode, resp.ConfigResources = kerr.UnsupportedVersion.Code, nil
			return resp
		}
		for _, name := range names {
			r := kmsg.NewListConfigResourcesResponseConfigResource()
			r.Name, r.Type = name, kind
			resp.ConfigResources = append(resp.ConfigResources, r)
		}
	}
	return resp
}
