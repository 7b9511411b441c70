package coordinator_test

import (
	"testing"

	"ponor/coordinator"
)

// The numbers are what Kafka computes: Utils.abs of String.hashCode, modulo 50.
func TestPartitionOfIsKafkas(t *testing.T) {
	for key, want := range map[string]int32{
		"":                   0,
		"a":                  47,
		"hello":              22,
		"console-consumer-1": 24,
		"polygenelubricants": 0, // the hash is the least int
		"gruppe-äö":          46,
		"😀g":                 22, // a surrogate pair counts as two
	} {
		if got := coordinator.PartitionOf(key, 50); got != want {
			t.Errorf("%q: partition %d, want %d", key, got, want)
		}
	}
}
