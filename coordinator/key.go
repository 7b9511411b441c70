package coordinator

import "unicode/utf16"

// PartitionOf is the partition that keeps a key, as in Kafka: the absolute value
// of the hash of a Java string, which goes by UTF-16 units, modulo the partitions.
func PartitionOf(key string, partitions int32) int32 {
	var h int32
	for _, u := range utf16.Encode([]rune(key)) {
		h = 31*h + int32(u)
	}
	if h < 0 {
		h = max(-h, 0) // the least int has no positive, and counts as 0
	}
	return h % partitions
}
