package broker

// ApiVersions v0-5: what this broker serves, answered from the API table.
//
// Version notes:
//   v1 throttle time
//   v3 flexible, client software name and version (KIP-511), features (KIP-584)
//   v4 features with minimum 0 may be shown
//   v5 expected cluster and node id (KIP-1242)
//
// An unknown version is answered with a version 0 body, UNSUPPORTED_VERSION and
// the full list (KIP-511), so that the client can choose.

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/metadata"
)

// feature is one versioned feature of the cluster (KIP-584) with the levels
// this binary supports.
type feature struct {
	name     string
	min, max int16
}

// features are what clients are told. A client changes its behaviour by them
// (transaction.version 2: no AddPartitionsToTxn), so each appears when it is
// served, not before. 7 is 3.3-IV3, Kafka's own floor; 33 is 4.4-IV2.
var features = []feature{
	{"metadata.version", 7, 33},
	{"kraft.version", 0, 1},
	{"group.version", 0, 1}, // KIP-848
}

func (b *Broker) apiVersions(_ context.Context, c call, req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := answer[*kmsg.ApiVersionsResponse](req)
	if c.Unsupported {
		resp.Version = 0
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		resp.ApiKeys = b.advertised
		return resp
	}
	img := b.image()
	if err := b.checkApiVersions(img, req); err != nil {
		resp.ErrorCode = codeOf(err)
		return resp
	}
	resp.ApiKeys = b.advertised
	if req.Version >= 3 {
		listFeatures(resp, img)
	}
	return resp
}

// checkApiVersions keeps KIP-511's rule on client names and KIP-1242's on
// connections that end at the wrong broker.
func (b *Broker) checkApiVersions(img *metadata.Image, req *kmsg.ApiVersionsRequest) error {
	if req.Version >= 3 && (!softwareName(req.ClientSoftwareName) || !softwareName(req.ClientSoftwareVersion)) {
		return fail(kerr.InvalidRequest, "client software name %q and version %q must be letters, digits, '-' and '.'", req.ClientSoftwareName, req.ClientSoftwareVersion)
	}
	if req.Version < 5 {
		return nil
	}
	switch hasCluster, hasNode := req.ClusterID != nil, req.NodeID >= 0; {
	case !hasCluster && !hasNode:
		return nil
	case hasCluster != hasNode:
		return fail(kerr.InvalidRequest, "cluster id and node id must be given together")
	}
	if *req.ClusterID != img.ClusterID() || req.NodeID != int32(b.cfg.NodeID) {
		return &apiError{code: kerr.RebootstrapRequired}
	}
	return nil
}

// softwareName says whether s matches KIP-511's pattern: letters and digits,
// with '-' and '.' inside.
func softwareName(s string) bool {
	for i := range len(s) {
		switch ch := s[i]; {
		case ch >= 'a' && ch <= 'z', ch >= 'A' && ch <= 'Z', ch >= '0' && ch <= '9':
		case (ch == '-' || ch == '.') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return s != ""
}

// advertise lists the API table as clients are told. All responses share the
// list: every connection asks for it first.
func advertise(rows []api) []kmsg.ApiVersionsResponseApiKey {
	keys := make([]kmsg.ApiVersionsResponseApiKey, 0, len(rows))
	for _, row := range rows {
		key := kmsg.NewApiVersionsResponseApiKey()
		key.ApiKey, key.MinVersion, key.MaxVersion = row.key, row.min, row.max
		if row.advertiseZero {
			key.MinVersion = 0
		}
		keys = append(keys, key)
	}
	return keys
}

// listFeatures shows supported and finalized features. The epoch is the index
// of the image: Java and franz-go take -1 for "unknown" and then stay on older
// protocols.
func listFeatures(resp *kmsg.ApiVersionsResponse, img *metadata.Image) {
	resp.FinalizedFeaturesEpoch = int64(img.Index())
	for _, f := range features {
		// Clients before v4 refuse a supported range that starts at 0.
		if f.min > 0 || resp.Version >= 4 {
			s := kmsg.NewApiVersionsResponseSupportedFeature()
			s.Name, s.MinVersion, s.MaxVersion = f.name, f.min, f.max
			resp.SupportedFeatures = append(resp.SupportedFeatures, s)
		}
		level := int16(img.Feature(f.name))
		if level == 0 {
			level = f.max // nothing was finalized lower
		}
		level = min(max(level, f.min), f.max)
		v := kmsg.NewApiVersionsResponseFinalizedFeature()
		v.Name, v.MinVersionLevel, v.MaxVersionLevel = f.name, level, level
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, v)
	}
}
