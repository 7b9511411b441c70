package locallog_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ponor/commitlog"
	"ponor/internal/kbatch"
	"ponor/locallog"
)

// dumpLog runs Kafka's own DumpLogSegments on a file. KAFKA_JARS names a
// directory with Kafka's jars.
func dumpLog(t *testing.T, args ...string) string {
	t.Helper()
	jars := os.Getenv("KAFKA_JARS")
	if jars == "" {
		home, _ := os.UserHomeDir()
		found, _ := filepath.Glob(filepath.Join(home, ".cache", "apache-kafka", "*", "kafka-tools-*.jar"))
		if len(found) == 0 {
			t.Skip("NOT TESTED: no Kafka jars; set KAFKA_JARS")
		}
		jars = filepath.Dir(found[0])
	}
	java, err := exec.LookPath("java")
	if err != nil {
		t.Skip("NOT TESTED: no java")
	}
	cmd := exec.CommandContext(t.Context(), java, append([]string{"-XX:TieredStopAtLevel=1", "-cp", filepath.Join(jars, "*"), "org.apache.kafka.tools.DumpLogSegments"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("dump log: %v\n%s", err, out)
	}
	return string(out)
}

func TestKafkaDumpLogReadsTheFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a JVM")
	}
	dir := t.TempDir()
	s, err := locallog.New(locallog.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	id := commitlog.ID{Topic: "orders", Partition: 3, TopicID: [16]byte{7}}
	l, err := s.Open(t.Context(), id, 5, commitlog.Options{Settings: func() commitlog.Settings {
		return commitlog.Settings{SegmentBytes: 40_000, IndexBytes: 500}
	}})
	if err != nil {
		t.Fatal(err)
	}
	var last commitlog.Commit
	for i := range 60 {
		r := kbatch.KV(fmt.Sprint("key-", i), strings.Repeat(fmt.Sprint("value-", i, " "), 50)).At(int64(1_700_000_000_000 + i))
		b := kbatch.New(r, r).InTransaction(77, 3, int32(2*i)).Compressed(kbatch.Codecs()[i%6])
		if i%10 == 9 {
			b = kbatch.Marker(77, 3, i%20 == 9, 4, int64(1_700_000_000_000+i))
		}
		if last, err = l.Append(b.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := last.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	logs, _ := filepath.Glob(filepath.Join(dir, "orders-3", "*.log"))
	if len(logs) == 0 {
		t.Fatal("there is no log")
	}
	first := logs[0]
	out := dumpLog(t, "--files", first, "--print-data-log", "--deep-iteration")
	for _, want := range []string{"key: key-0", "payload: value-0", "producerId: 77", "producerEpoch: 3", "compresscodec: zstd", "compresscodec: lz4",
		"endTxnMarker: COMMIT", "coordinatorEpoch: 4", "partitionLeaderEpoch: 5", "isvalid: true"} {
		if !strings.Contains(out, want) {
			t.Errorf("the dump of %s does not say %q", filepath.Base(first), want)
		}
	}
	if strings.Contains(out, "isvalid: false") {
		t.Error("Kafka finds a batch invalid")
	}
	var indexes []string
	for _, log := range logs {
		base := strings.TrimSuffix(log, ".log")
		indexes = append(indexes, base+".index", base+".timeindex")
	}
	// Kafka walks each log and lists the entries that do not agree with it.
	verified := dumpLog(t, "--files", strings.Join(indexes, ","), "--verify-index-only")
	for _, bad := range []string{"Mismatches", "Found", "out of order", "Exception"} {
		if strings.Contains(verified, bad) {
			t.Errorf("Kafka finds fault with the indexes:\n%s", verified)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}
