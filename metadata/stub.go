package metadata

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
