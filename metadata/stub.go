package metadata

import (
	"errors"

	"ponor/metadata/metadatapb"
)

var errStub = errors.New("not written yet")

func TopicConfigs() []ConfigDef                        { return nil }
func BrokerConfigs() []ConfigDef                       { return nil }
func LookupTopicConfig(name string) (ConfigDef, bool)  { return ConfigDef{}, false }
func LookupBrokerConfig(name string) (ConfigDef, bool) { return ConfigDef{}, false }
func NearestConfig(name string) string                 { return "" }
func ValidateTopicConfig(name, value string) error     { return nil }
func ValidateBrokerConfig(name, value string) error    { return nil }
func (img *Image) resolveSettings(name string) TopicSettings {
	return TopicSettings{CompressionType: CompressionProducer, MaxMessageBytes: 1048588, Delete: true, RetentionMs: 604800000, RetentionBytes: -1, SegmentBytes: 1 << 30, SegmentMs: 604800000, IndexIntervalBytes: 4096, DeleteRetentionMs: 86400000, MinInsyncReplicas: 1, TimestampBeforeMaxMs: 1<<63 - 1, TimestampAfterMaxMs: 3600000}
}

// Apply is the pure state machine.
func Apply(img *Image, index Index, e *metadatapb.Entry) (*Image, []Result) { return img, nil }

// Snapshot is the image as a message.
func Snapshot(img *Image) *metadatapb.Snapshot { return nil }

// FromSnapshot is the reverse of Snapshot.
func FromSnapshot(s *metadatapb.Snapshot) (*Image, error) { return nil, errStub }

// Hash is the SHA-256 of the snapshot encoding.
func (img *Image) Hash() [32]byte { return [32]byte{} }

// Check proves the invariants of an image.
func Check(img *Image) error { return nil }

// CheckStep proves what must hold between an image and a later one.
func CheckStep(prev, next *Image) error { return nil }
