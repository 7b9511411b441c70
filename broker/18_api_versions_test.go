package broker_test

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func apiVersionsRequest() *kmsg.ApiVersionsRequest {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "ponor-test", "1.0"
	return req
}

// What is advertised is what is served: the list equals the server's table, and
// Kafka 4.4's ranges (KIP-896).
func TestApiVersionsMatchTheTable(t *testing.T) {
	c := newCluster(t)
	resp := ask[*kmsg.ApiVersionsResponse](c.dial(), 5, apiVersionsRequest())
	isCode(t, "response", resp.ErrorCode, nil)
	kafka := map[int16][2]int16{
		0: {0, 13}, 1: {4, 18}, 2: {1, 11}, 3: {0, 13}, 8: {2, 10}, 9: {1, 10}, 10: {0, 6}, 11: {0, 9}, 12: {0, 4}, 13: {0, 5}, 14: {0, 5}, 15: {0, 6}, 16: {0, 5}, 18: {0, 5}, 19: {2, 7}, 20: {1, 6}, 21: {0, 2},
		22: {0, 5}, 23: {2, 4}, 32: {1, 4}, 33: {0, 2}, 34: {1, 2}, 35: {1, 5}, 37: {0, 3}, 42: {0, 3}, 43: {0, 2}, 44: {0, 1}, 45: {0, 1}, 46: {0, 0}, 47: {0, 0}, 55: {0, 2}, 60: {0, 2}, 64: {0, 0}, 68: {0, 1}, 69: {0, 1}, 74: {0, 1}, 75: {0, 0}, 80: {0, 1}, 81: {0, 0},
	}
	for _, k := range resp.ApiKeys {
		if want, ok := kafka[k.ApiKey]; !ok || want != [2]int16{k.MinVersion, k.MaxVersion} {
			t.Errorf("key %d: advertised %d-%d, want %v", k.ApiKey, k.MinVersion, k.MaxVersion, want)
		}
		delete(kafka, k.ApiKey)
	}
	is(t, "keys that are missing", len(kafka), 0)
	for _, a := range c.APIs("") {
		low, high := a.Advertised()
		i := slices.IndexFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == a.Key })
		if i < 0 || resp.ApiKeys[i].MinVersion != low || resp.ApiKeys[i].MaxVersion != high {
			t.Errorf("key %d is served but advertised otherwise", a.Key)
		}
	}
}

// KIP-511: an unknown version gets a version 0 body with the error and the list.
func TestApiVersionsOfAnUnknownVersion(t *testing.T) {
	c := newCluster(t)
	req := apiVersionsRequest()
	resp := ask[*kmsg.ApiVersionsResponse](c.dial(), 9, req)
	isCode(t, "response", resp.ErrorCode, kerr.UnsupportedVersion)
	is(t, "keys", len(resp.ApiKeys), len(c.APIs("")))
}

// KIP-584 and Kafka 4.4: the epoch is never -1, and features whose minimum is 0
// are left out below version 4.
func TestApiVersionsFeatures(t *testing.T) {
	c := newCluster(t)
	cl := c.dial()
	for version := int16(0); version <= 5; version++ {
		resp := ask[*kmsg.ApiVersionsResponse](cl, version, apiVersionsRequest())
		isCode(t, "response", resp.ErrorCode, nil)
		if version < 3 {
			continue
		}
		is(t, "epoch", resp.FinalizedFeaturesEpoch, int64(c.Image().Index()))
		var names []string
		for _, f := range resp.SupportedFeatures {
			names = append(names, f.Name)
		}
		is(t, "kraft.version is supported", slices.Contains(names, "kraft.version"), version >= 4)
		is(t, "metadata.version is supported", slices.Contains(names, "metadata.version"), true)
		groups := int16(0)
		for _, f := range resp.FinalizedFeatures {
			if f.Name == "transaction.version" {
				t.Errorf("%s is finalized but not served", f.Name)
			}
			if f.Name == "group.version" {
				groups = f.MaxVersionLevel
			}
		}
		is(t, "finalized group.version", groups, 1)
	}
}

// KIP-1242, as Kafka 4.4 answers.
func TestApiVersionsChecksClusterAndNode(t *testing.T) {
	id, other := clusterID, "another"
	for _, tc := range []struct {
		name    string
		cluster *string
		node    int32
		want    *kerr.Error
	}{
		{"both right", &id, 1, nil},
		{"none", nil, -1, nil},
		{"wrong cluster", &other, 1, kerr.RebootstrapRequired},
		{"wrong node", &id, 2, kerr.RebootstrapRequired},
		{"cluster only", &id, -1, kerr.InvalidRequest},
		{"node only", nil, 1, kerr.InvalidRequest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := apiVersionsRequest()
			req.ClusterID, req.NodeID = tc.cluster, tc.node
			resp := ask[*kmsg.ApiVersionsResponse](newCluster(t).dial(), 5, req)
			isCode(t, "response", resp.ErrorCode, tc.want)
		})
	}
}

// KIP-511: names that do not match the pattern are refused.
func TestApiVersionsRefusesBadSoftwareNames(t *testing.T) {
	cl := newCluster(t).dial()
	for _, bad := range []string{"", "-x", "x-", "a b", "x\x00"} {
		req := apiVersionsRequest()
		req.ClientSoftwareName = bad
		resp := ask[*kmsg.ApiVersionsResponse](cl, 3, req)
		isCode(t, "name "+bad, resp.ErrorCode, kerr.InvalidRequest)
	}
}

// librdkafka before 2.4 allows lz4 only where FindCoordinator v0 is served, and
// before 2.8 compresses only where Produce v0 is (KAFKA-18659).
func TestRangesThatOldLibrdkafkaNeeds(t *testing.T) {
	resp := ask[*kmsg.ApiVersionsResponse](newCluster(t).dial(), 0, apiVersionsRequest())
	for key, version := range map[int16]int16{0: 0, 1: 4, 2: 1, 10: 0, 18: 0, 22: 0} {
		ok := slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool {
			return k.ApiKey == key && k.MinVersion <= version && version <= k.MaxVersion
		})
		if !ok {
			t.Errorf("key %d version %d is not in the range", key, version)
		}
	}
}
