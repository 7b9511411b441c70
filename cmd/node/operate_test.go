package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/commitlog"
	"ponor/controller"
	"ponor/internal/ports"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/rpc"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/verify"
	"ponor/sharedlog/wal"
)

// testNode is a cluster of one node in this process, on a directory.
type testNode struct {
	t                    *testing.T
	dir, clients, quorum string
	stop                 func()
}

func newTestNode(t *testing.T) *testNode {
	row, release, err := ports.Row(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	release()
	n := &testNode{t: t, dir: t.TempDir(), clients: fmt.Sprint("127.0.0.1:", row[0]), quorum: fmt.Sprint("127.0.0.1:", row[1])}
	n.start("1")
	return n
}

func (n *testNode) store() string { return "dir://" + filepath.Join(n.dir, "store") }

// start runs it on one of its data directories, until stop.
func (n *testNode) start(data string) {
	n.t.Helper()
	set, _, err := loadSettings("", map[string]string{"listen": n.clients, "controller-listen": n.quorum,
		"store": n.store(), "data-dir": filepath.Join(n.dir, data), "cache-bytes": "16MiB"})
	if err != nil {
		n.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	b, err := startStore(n.t.Context(), set, log)
	if err != nil {
		n.t.Fatal(err)
	}
	node, err := newNode(n.t.Context(), set, b, log, new(slog.LevelVar))
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); err = node.Run(ctx) }()
	n.stop = func() {
		cancel()
		<-done
		if err != nil {
			n.t.Errorf("the node ended with %v", err)
		}
		_ = b.Close()
		n.stop = func() {}
	}
	n.t.Cleanup(func() { n.stop() })
	select {
	case <-node.Ready():
	case <-done:
		n.t.Fatal(err)
	case <-time.After(time.Minute):
		n.t.Fatal("the node does not get ready")
	}
}

// does runs a command line against it, which must succeed, and returns its output.
func (n *testNode) does(line string) string {
	n.t.Helper()
	code, out, errOut := n.runs(line)
	if code != exitOK {
		n.t.Fatalf("ponor %s: exit %d: %s%s", line, code, out, errOut)
	}
	return out
}

// says wants a command line to exit with code and to print all of this.
func (n *testNode) says(line string, code int, want ...string) {
	n.t.Helper()
	got, out, errOut := n.runs(line)
	if got != code {
		n.t.Errorf("ponor %s: exit %d, want %d: %s%s", line, got, code, out, errOut)
	}
	for _, w := range want {
		if !strings.Contains(out+errOut, w) {
			n.t.Errorf("ponor %s: %q is missing in: %s%s", line, w, out, errOut)
		}
	}
}

func (n *testNode) runs(line string) (code int, out, errOut string) {
	n.t.Helper()
	n.t.Setenv("PONOR_BOOTSTRAP", n.clients)
	return ponor(n.t, strings.Fields(line)...)
}

// produce appends one record.
func (n *testNode) produce(topic, value string) {
	n.t.Helper()
	n.t.Setenv("PONOR_BOOTSTRAP", n.clients)
	var errOut bytes.Buffer
	if code := run([]string{"produce", topic}, strings.NewReader(value+"\n"), io.Discard, &errOut); code != exitOK {
		n.t.Fatalf("produce: exit %d: %s", code, errOut.String())
	}
}

// claimed says whether a later generation than the first has its mark in the store.
func (n *testNode) claimed(cluster string) bool {
	n.t.Helper()
	b, err := openBucket(n.t.Context(), n.store(), "test")
	if err != nil {
		n.t.Fatal(err)
	}
	defer b.Close()
	err = objstore.CheckGeneration(n.t.Context(), b, cluster, 1)
	if err != nil && !errors.Is(err, objstore.ErrRestored) {
		n.t.Fatal(err)
	}
	return err != nil
}

// A cluster is fenced by the claim of a new generation: a restore that cannot be
// done must not get that far.
func TestRefusedRestoreLeavesTheStoreUnclaimed(t *testing.T) {
	n := newTestNode(t)
	n.does("topic create orders --partitions 2")
	file := filepath.Join(n.dir, "backup")
	out := n.does("metadata backup " + file)
	_, rest, _ := strings.Cut(out, "cluster ")
	cluster, _, _ := strings.Cut(rest, ",")
	n.says("metadata restore "+file+" --store "+n.store()+" --data-dir "+n.dir+"/2", exitError, "somebody answers at "+n.clients, "stop all its nodes first", "--force")
	n.stop()
	damaged := filepath.Join(n.dir, "damaged")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(damaged, b, 0o600); err != nil {
		t.Fatal(err)
	}
	restore := "metadata restore --store " + n.store() + " --controller-advertise " + n.quorum
	n.says(restore+" "+file+" --data-dir "+n.dir+"/1", exitError, "has files already", "choose an empty directory")
	n.says("metadata restore --store "+n.store()+" "+file+" --data-dir "+n.dir+"/2 --controller-advertise nowhere", exitError, `"nowhere": write host:port`)
	n.says(restore+" "+damaged+" --data-dir "+n.dir+"/2", exitError, "it is damaged", "use another copy")
	n.says("metadata restore "+file+" --store dir://"+n.dir+"/other --data-dir "+n.dir+"/2", exitError, "no such file or directory")
	if n.claimed(cluster) {
		t.Error("a refused restore has claimed a generation: the cluster is fenced")
	}
	n.start("1") // and goes on
	n.does("topic describe orders")
	n.stop()
	n.says(restore+" "+file+" --data-dir "+n.dir+"/2", exitOK)
	if !n.claimed(cluster) {
		t.Error("a restore has claimed nothing")
	}
}

// What a restore cannot bring back is told at once and by the audit, with what to
// do.
func TestRestoreAndAuditSayWhatIsMissing(t *testing.T) {
	n := newTestNode(t)
	file := filepath.Join(n.dir, "backup")
	n.does("topic create orders --partitions 1")
	n.says("metadata audit "+n.store(), exitOK, "was never restored")
	n.does("metadata backup " + file)
	n.says("metadata backup "+file, exitError, "is there already: choose another name")
	n.stop()
	n.start("1") // a new incarnation, which the backup does not know
	n.produce("orders", "after the backup")
	n.stop()
	n.says("metadata restore "+file+" --store "+n.store()+" --data-dir "+n.dir+"/2 --controller-advertise "+n.quorum, exitOK,
		"NOT RESTORED  broker 1-2 registered after the backup", "but for those named NOT RESTORED",
		"Start it: ponor start --node-id 1 --data-dir "+n.dir+"/2", "ponor metadata audit 'dir://")
	n.start("2")
	n.says("metadata audit "+n.store(), exitError, "unknown object", "generation 2 may not delete objects yet", "--accept")
	n.says("metadata audit "+n.store()+" --accept", exitOK, "generation 2 of cluster", "may delete objects")
	n.says("metadata audit "+n.dir, exitUnchecked)
}

// What the store has and no log gets is named, also if the WAL that had it ends, or
// seems to end, where the backup has it.
func TestRestoreNamesWhatWasPackedAfterTheBackup(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(b objstore.Bucket, inc metadata.Incarnation, prefix string) error
		want   string
	}{
		"a slot is missing that may have been in flight": {func(b objstore.Bucket, inc metadata.Incarnation, prefix string) error {
			cluster, _, _ := strings.Cut(prefix, "/")
			return b.PutNew(t.Context(), wal.SlotKey(prefix, inc, 2), objstore.BytesBody(wal.EncodeEmptySlot(wal.Header{
				ClusterID: cluster, Generation: 1, Incarnation: inc, Author: inc, Seq: 2, DurableBelow: 1, Window: 2})))
		}, "NOT RESTORED  broker 1-1 has slots 2 to 2 of its write-ahead log behind slot 1, which is missing"},
		"no slot is left": {func(b objstore.Bucket, inc metadata.Incarnation, prefix string) error {
			if err := b.Delete(t.Context(), wal.SlotKey(prefix, inc, 0)); err != nil {
				return err
			}
			object := metadata.ObjectName{Kind: metadata.SegmentObject, Creator: inc, Number: 0}
			return b.PutNew(t.Context(), prefix+"/"+object.String(), objstore.BytesBody([]byte("records")))
		}, "NOT RESTORED  broker 1-1 packed or rewrote records after the backup"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			file := filepath.Join(n.dir, "backup")
			n.does("topic create orders --partitions 1")
			n.does("metadata backup " + file)
			n.produce("orders", "after the backup")
			n.stop()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			backup, err := controller.ReadBackup(raw)
			if err != nil {
				t.Fatal(err)
			}
			b, err := openBucket(t.Context(), n.store(), "test")
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			if err := tc.change(b, metadata.Incarnation{Broker: 1, Epoch: 1}, objstore.GenerationPrefix(backup.Image.ClusterID(), 1)); err != nil {
				t.Fatal(err)
			}
			n.says("metadata restore "+file+" --store "+n.store()+" --data-dir "+n.dir+"/2 --controller-advertise "+n.quorum, exitOK, tc.want)
			n.start("2")
		})
	}
}

// imageOf has the metadata of a cluster of generation 1, and what applies a command
// to it.
func imageOf(t *testing.T) (img func() *metadata.Image, apply func(*metadatapb.Command) metadata.Result) {
	t.Helper()
	now := metadata.Empty()
	apply = func(c *metadatapb.Command) metadata.Result {
		t.Helper()
		next, results := metadata.Apply(now, now.Index()+1, metadata.NewEntry(c))
		if err := results[0].Rejected(); err != nil {
			t.Fatal(err)
		}
		now = next
		return results[0]
	}
	apply(&metadatapb.Command{Body: &metadatapb.Command_InitCluster{InitCluster: &metadatapb.InitCluster{ClusterId: "AAAAAAAAAAAAAAAAAAAAAA", Generation: 1}}})
	return func() *metadata.Image { return now }, apply
}

// walsFrom is metadata with a broker that has packed all below a trim, and an empty store.
func walsFrom(t *testing.T, trim uint64) (*metadata.Image, objstore.Bucket, metadata.Incarnation) {
	img, apply := imageOf(t)
	inc := apply(&metadatapb.Command{Body: &metadatapb.Command_RegisterBroker{RegisterBroker: &metadatapb.RegisterBroker{Broker: 1, Nonce: make([]byte, metadata.NonceBytes)}}}).Incarnation
	apply(&metadatapb.Command{From: inc.Proto(), CmdSeq: 1, Body: &metadatapb.Command_CommitExtents{CommitExtents: &metadatapb.CommitExtents{Trim: trim}}})
	b, err := openBucket(t.Context(), "dir://"+t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return img(), b, inc
}

// putSlot puts a data slot without records into the store.
func putSlot(t *testing.T, b objstore.Bucket, img *metadata.Image, inc metadata.Incarnation, seq, durable uint64) {
	t.Helper()
	slot := wal.EncodeEmptySlot(wal.Header{ClusterID: img.ClusterID(), Generation: 1, Incarnation: inc, Author: inc, Seq: seq, DurableBelow: durable, Window: 2})
	if err := b.PutNew(t.Context(), wal.SlotKey(objstore.GenerationPrefix(img.ClusterID(), 1), inc, seq), objstore.BytesBody(slot)); err != nil {
		t.Fatal(err)
	}
}

// A WAL of which only slots below the trim are left, which large chunks keep, ends at
// the trim, as what is below a fence at its newest slot was packed. Newer objects, and nothing else, say that it
// had more.
func TestAWALThatEndsBelowTheTrimIsSealed(t *testing.T) {
	for _, packed := range []bool{false, true} {
		t.Run(fmt.Sprintf("packed since %v", packed), func(t *testing.T) {
			img, b, inc := walsFrom(t, 9)
			prefix := objstore.GenerationPrefix(img.ClusterID(), 1)
			putSlot(t, b, img, inc, 3, 3)
			if packed {
				object := metadata.ObjectName{Kind: metadata.SegmentObject, Creator: inc, Number: 0}
				if err := b.PutNew(t.Context(), prefix+"/"+object.String(), objstore.BytesBody([]byte("records"))); err != nil {
					t.Fatal(err)
				}
			}
			fenced, err := wal.FenceAll(t.Context(), wal.SealConfig{Bucket: b, ClusterID: img.ClusterID()}, 2)
			if err != nil {
				t.Fatal(err)
			}
			if sealed, lost := sealLost(img, fenced); len(sealed) != 0 || len(lost) != 0 {
				t.Fatalf("sealed %v, lost %q", sealed, lost)
			}
			lines, err := packedSince(t.Context(), b, img, 2, fenced)
			if err != nil || (len(lines) == 1) != packed {
				t.Errorf("packed since the backup: %q, %v", lines, err)
			}
			if indexes, err := readIndexes(t.Context(), b, img, fenced); err != nil || len(indexes[inc]) != 0 {
				t.Errorf("slots that are recovered: %v, %v, want none", indexes[inc], err)
			}
			if h, _, err := wal.ReadIndex(t.Context(), b, prefix, inc, 9); err != nil || h.Kind != wal.Fence {
				t.Errorf("slot 9: %+v, %v, want a fence", h, err)
			}
		})
	}
}

// A slot was packed while those behind it were written, and the broker wrote no more:
// the backup knows that it is gone, and what is behind it is recovered.
func TestSlotsBehindOneThatWasPackedBeforeTheBackupAreRecovered(t *testing.T) {
	img, b, inc := walsFrom(t, 7)
	putSlot(t, b, img, inc, 7, 6)
	putSlot(t, b, img, inc, 8, 6)
	for range 2 { // a second restore is the same
		fenced, err := wal.FenceAll(t.Context(), wal.SealConfig{Bucket: b, ClusterID: img.ClusterID()}, 2)
		if err != nil {
			t.Fatal(err)
		}
		if sealed, lost := sealLost(img, fenced); len(sealed) != 0 || len(lost) != 0 {
			t.Fatalf("sealed without what is in it: %v, lost %q", sealed, lost)
		}
		indexes, err := readIndexes(t.Context(), b, img, fenced)
		if err != nil || len(indexes[inc]) != 2 {
			t.Errorf("slots that are recovered: %v, %v, want 7 and 8", indexes[inc], err)
		}
	}
}

// An audit that exits with 1 does not only say that there are no problems.
func TestAuditSaysWhatItFound(t *testing.T) {
	for want, n := range map[string][2]int{
		"nothing is missing or left over":                                    {0, 0},
		"nothing is missing, but there is 1 group of unreferenced objects":   {0, 1},
		"nothing is missing, but there are 2 groups of unreferenced objects": {0, 2},
		"1 problem": {1, 0},
		"2 problems and 1 group of unreferenced objects": {2, 1},
	} {
		if got := foundText(n[0], n[1]); got != want {
			t.Errorf("%v: %q, want %q", n, got, want)
		}
	}
}

func TestLeftoversAreGroupedByLog(t *testing.T) {
	garbage := []verify.Garbage{
		{Key: "c/1/wal/2-4/0/7", Bytes: 10, Reason: "packed"}, {Key: "c/1/wal/2-4/0/8", Bytes: 20, Reason: "packed"},
		{Key: "c/1/seg/2-4/3", Bytes: 5, Reason: "dead"}, {Key: "c/2/wal/2-4/0/7", Bytes: 10, Reason: "packed"},
	}
	want := []leftover{{"c/1/seg/2-4/", "dead", 1, 5}, {"c/1/wal/2-4/0/", "packed", 2, 30}}
	if got := leftovers(garbage, "c/2/"); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// It takes ten seconds by default, in which nothing else is printed.
func TestGroupWhySaysWhatItWaitsFor(t *testing.T) {
	n := newTestNode(t)
	n.does("topic create orders --partitions 2")
	n.does("group reset g --topic orders --to start --execute")
	n.says("group why g --watch 10ms", exitOK, "watching group g for 10 ms")
	if _, _, errOut := n.runs("group why g --watch 10ms --format json"); errOut != "" {
		t.Errorf("beside JSON: %s", errOut)
	}
	if _, _, errOut := n.runs("group why nobody"); strings.Contains(errOut, "watching") {
		t.Errorf("a group that is not there is watched: %s", errOut)
	}
}

func TestQuorumStatusFindsTheControllers(t *testing.T) {
	n := newTestNode(t)
	n.says("quorum status", exitOK, "node 1 leads in term", n.quorum, "Leader")
	n.says("quorum status --controllers "+n.quorum, exitOK, "node 1 leads in term", "Leader")
	n.says("quorum status --controllers "+n.quorum+",127.0.0.1:1", exitError, "no answer", "is that node running?")
	n.says("quorum status --bootstrap 127.0.0.1:1", exitError, "no broker answers at 127.0.0.1:1", "is --bootstrap the --listen address of a broker?")
	n.says("quorum remove 9", exitError, "node 9 is not known; the voters are [1]")
	n.says("quorum remove 1", exitError, "the only voter")
	var v quorumView
	if err := json.Unmarshal([]byte(n.does("quorum status --format json")), &v); err != nil {
		t.Fatal(err)
	}
	if v.Leader != 1 || v.Cluster == "" || len(v.Controllers) != 1 || v.Controllers[0].Hash == "" {
		t.Errorf("%+v", v)
	}
}

// One that hangs takes connections and says nothing, wherever it is in the list.
func TestABrokerThatHangsIsPassedOver(t *testing.T) {
	n := newTestNode(t)
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hangs.Close() }()
	for i, list := range []string{hangs.Addr().String() + "," + n.clients, n.clients + "," + hangs.Addr().String(), "127.0.0.1:1," + n.clients} {
		n.says("topic create t"+strconv.Itoa(i)+" --bootstrap "+list, exitOK, "created")
		n.says("quorum status --bootstrap "+list, exitOK, "node 1 leads in term")
	}
	leaves, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = leaves.Close() }()
	go func() {
		for {
			c, err := leaves.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	b, err := askAny(t.Context(), []string{hangs.Addr().String(), leaves.Addr().String(), "127.0.0.1:1", n.clients}, time.Second, controller.AskBalance)
	if err != nil || len(b.Brokers) != 1 {
		t.Errorf("asked for the balance: %+v, %v", b, err)
	}
	if _, err := askAny(t.Context(), []string{leaves.Addr().String(), hangs.Addr().String()}, 100*time.Millisecond, controller.AskBalance); err == nil || errors.Is(err, controller.ErrForeign) {
		t.Errorf("one that hangs may be a Ponor broker: %v", err)
	}
	if _, err := askAny(t.Context(), []string{leaves.Addr().String()}, time.Second, controller.AskBalance); !errors.Is(err, controller.ErrForeign) {
		t.Errorf("one that hangs up on a call that it does not know: %v", err)
	}
	v := storeVerify{clientFlags: clientFlags{bootstrap: hangs.Addr().String() + "," + n.clients, timeout: time.Hour}}
	soon, cancel := context.WithTimeout(t.Context(), time.Minute) // long before the share of one that hangs is over
	defer cancel()
	if img, err := v.ask(soon); err != nil || img.ClusterID() == "" {
		t.Errorf("asked for the metadata: %v", err)
	}
	if _, err := new(storeVerify).ask(t.Context()); !errors.Is(err, errNoSeeds) {
		t.Errorf("asked nobody for the metadata: %v", err)
	}
	both := []string{"127.0.0.1:1", hangs.Addr().String(), "127.0.0.1:1"}
	if _, err := askAny(t.Context(), both, 100*time.Millisecond, controller.AskBalance); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that hangs counts more than those that are not there: %v", err)
	}
	cordon := func(id metadata.BrokerID) error {
		_, err := askAny(t.Context(), []string{hangs.Addr().String(), n.clients, hangs.Addr().String()}, time.Second, func(ctx context.Context, c *rpc.Client) (struct{}, error) {
			return struct{}{}, controller.AskBrokerState(ctx, c, id, false, false)
		})
		return err
	}
	if err := cordon(1); err != nil {
		t.Errorf("set the state of a broker: %v", err)
	}
	if err := cordon(9); err == nil || !strings.Contains(err.Error(), "not registered") {
		t.Errorf("what one said counts more than those that hang: %v", err)
	}
}

// The store is away for as long as the producer waits.
func TestProduceEndsWithItsTimeout(t *testing.T) {
	n := newTestNode(t)
	n.does("topic create kept")
	n.produce("kept", "1")
	store := filepath.Join(n.dir, "store")
	if err := os.Rename(store, store+".away"); err != nil {
		t.Fatal(err)
	}
	n.t.Setenv("PONOR_BOOTSTRAP", n.clients)
	var errOut bytes.Buffer
	code := run([]string{"produce", "kept", "--timeout", "2s"}, strings.NewReader("2\n"), io.Discard, &errOut)
	if err := os.Rename(store+".away", store); err != nil {
		t.Error(err)
	}
	if code != exitError || !strings.Contains(errOut.String(), "timed out") {
		t.Errorf("exit %d: %s", code, &errOut)
	}
}

// A topic's own limit is what 'produce' takes, and what it names when a record is larger.
func TestProduceTakesTheTopicsLimit(t *testing.T) {
	n := newTestNode(t)
	n.does("topic create large --config max.message.bytes=5000000")
	n.produce("large", strings.Repeat("x", 4_900_000))
	var errOut bytes.Buffer
	code := run([]string{"produce", "large"}, strings.NewReader(strings.Repeat("x", 5_100_000)+"\n"), io.Discard, &errOut)
	if code != exitError || !strings.Contains(errOut.String(), "a record is too large: it has 5100000 bytes") || !strings.Contains(errOut.String(), "is 5000000; 'ponor topic alter large --config max.message.bytes=BYTES'") {
		t.Errorf("exit %d: %s", code, &errOut)
	}
}

func TestTopicAlter(t *testing.T) {
	n := newTestNode(t)
	n.does("topic create orders --partitions 2 --config retention.ms=1000")
	n.says("topic alter orders --config max.message.bytes=2000000 --config cleanup.policy=delete --delete-config retention.ms --partitions 3", exitOK,
		"orders: max.message.bytes = 2000000", "orders: retention.ms is the default again", "orders has 3 partitions")
	out := n.does("topic describe orders")
	if !strings.Contains(out, "max.message.bytes = 2000000") || strings.Contains(out, "retention.ms") || !strings.Contains(out, "\n2  ") {
		t.Error(out)
	}
	n.says("topic alter orders", exitUsage, "nothing to change", "--config")
	n.says("topic alter orders --config retention.ms", exitUsage, "write name=value")
	n.says("topic alter orders --config nope=1", exitError, "alter topic orders", "nope")
	n.says("topic alter orders --partitions 2", exitError, "alter topic orders", "partitions cannot be taken away")
	n.says("topic alter oders --partitions 5", exitError, "there is no such topic (did you mean orders?)")
}

func TestTopicsThatAreNotThere(t *testing.T) {
	n := newTestNode(t)
	n.does("topic create orders --partitions 2")
	n.says("topic delete orders __consumer_offsets", exitUsage, "the committed offsets of all groups", "nothing was deleted")
	for _, line := range []string{
		"topic describe oders", "topic delete oders", "topic move oders/0 --to 1", "consume oders --until-end", "consume oders --group g",
		"bench consume --topic oders", "group reset g --topic oders --to start",
	} {
		n.says(line, exitError, "oders", "there is no such topic (did you mean orders?)", "'ponor topic list'")
	}
	var errOut bytes.Buffer
	if code := run([]string{"produce", "oders"}, strings.NewReader("x\n"), io.Discard, &errOut); code != exitError || !strings.Contains(errOut.String(), "'ponor topic create oders' makes it") {
		t.Errorf("produce: exit %d: %s", code, errOut.String())
	}
	n.says("produce oders", exitError, "there is no such topic (did you mean orders?)", "'ponor topic create oders' makes it") // with nothing to send, too
	n.says("group reset g --topic orders --to start --execute", exitOK, "moved 2 offsets")
	n.says("group describe g h", exitError, "g  classic group, Empty", "describe group h: there is no such group")
	n.says("consume orders --from start -e --partitions 1,5", exitUsage, "topic orders has no partition 5; it has 2")
	n.says("broker drain 9", exitError, "broker 9 is not registered; 'ponor cluster status' shows the brokers")
	n.says("topic move orders/7 --to 1", exitError, "has 2 partitions, 0 to 1")
	n.says("topic move orders/0 --to 9", exitError, "the brokers are [1]")
}

func TestRecordsOfPartitionsThatMovedAreToldByARestore(t *testing.T) {
	img, apply := imageOf(t)
	var brokers []metadata.Incarnation
	for id := range int32(2) {
		brokers = append(brokers, apply(&metadatapb.Command{Body: &metadatapb.Command_RegisterBroker{RegisterBroker: &metadatapb.RegisterBroker{
			Broker: id + 1, Nonce: make([]byte, metadata.NonceBytes)}}}).Incarnation)
	}
	owner, other := brokers[0], brokers[1]
	spec := &metadatapb.PartitionSpec{Replicas: []int32{1}, Owner: owner.Proto()}
	apply(&metadatapb.Command{Body: &metadatapb.Command_CreateTopic{CreateTopic: &metadatapb.CreateTopic{Name: "orders", TopicId: append(make([]byte, 15), 1), Partitions: []*metadatapb.PartitionSpec{spec, spec, spec, spec}}}})
	apply(&metadatapb.Command{Body: &metadatapb.Command_ClaimGeneration{ClaimGeneration: &metadatapb.ClaimGeneration{Generation: 2}}})
	var streams []metadata.Partition
	for topic := range img().Topics() {
		streams = slices.Collect(img().Partitions(topic.ID))
	}
	chunk := func(partition int, epoch commitlog.Epoch, base, end commitlog.Offset) wal.Chunk {
		return wal.Chunk{Stream: streams[partition].Stream, Epoch: epoch, Base: base, End: end}
	}
	e := streams[0].Epoch
	got := movedAway(img(), map[metadata.Incarnation][]wal.Index{
		owner: {{Chunks: []wal.Chunk{chunk(0, e, 0, 5), chunk(1, e, 0, 5), chunk(2, e, 0, 5), chunk(3, e, 0, 5)}},
			{Seq: 1, Chunks: []wal.Chunk{chunk(0, e, 5, 9), chunk(2, e+2, 7, 9), chunk(3, e+2, 5, 6)}}},
		other: {{Chunks: []wal.Chunk{chunk(1, e+1, 5, 8), chunk(2, e+1, 5, 7)}}},
	})
	want := []string{
		"orders/1 moved to another broker after the backup: its offsets 5 to 7 are in the store and in no log",
		"orders/2 moved to another broker after the backup: its offsets 5 to 8 are in the store and in no log",
		"orders/3 moved to another broker after the backup: its offsets 5 to 5 are in the store and in no log",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// Who asks for compaction is told that there is none yet.
func TestTopicsAreNotCompacted(t *testing.T) {
	n := newTestNode(t)
	n.says("topic create kept --config cleanup.policy=compact", exitOK, "created kept", "not compacted yet")
}

func TestWhatIsWrongWithAQuorum(t *testing.T) {
	is := func(node int32, state string, term uint64, cluster string, generation, index uint64, hash string) controllerView {
		return controllerView{Address: "a" + strconv.Itoa(int(node)), Node: node, State: state, Term: term, Cluster: cluster, Generation: generation, Index: index, Hash: hash}
	}
	for name, c := range map[string]struct {
		list   []controllerView
		leader int32
		says   string
	}{
		"nothing":               {[]controllerView{is(1, "Follower", 4, "c", 1, 9, "x"), is(2, "Leader", 4, "c", 1, 9, "x"), is(3, "Follower", 4, "c", 1, 8, "y")}, 2, ""},
		"one has no metadata":   {[]controllerView{is(1, "Follower", 0, "", 0, 0, ""), is(2, "Leader", 4, "c", 1, 9, "x")}, 2, ""},
		"nobody leads":          {[]controllerView{is(1, "Candidate", 4, "c", 1, 9, "x"), is(2, "Follower", 4, "c", 1, 9, "x")}, -1, "no controller leads"},
		"hashes differ":         {[]controllerView{is(1, "Leader", 4, "c", 1, 9, "x"), is(2, "Follower", 4, "c", 1, 9, "y")}, 1, "at index 9 node 1 has hash x and node 2 has y"},
		"two generations":       {[]controllerView{is(1, "Leader", 4, "c", 1, 9, "x"), is(2, "Leader", 5, "c", 2, 9, "y")}, 2, "node 1 is of generation 1 of the metadata and node 2 of 2"},
		"the old one votes on":  {[]controllerView{is(1, "Leader", 3, "c", 2, 9, "x"), is(2, "Leader", 4, "c", 1, 12, "y"), is(3, "Follower", 4, "c", 1, 12, "y")}, 1, "node 2 is of generation 1 of the metadata and node 1 of 2"},
		"one was replaced":      {[]controllerView{is(1, "Leader", 4, "c", 1, 9, "x"), is(2, "Leader", 5, "c", 1, 10, "y")}, 2, ""},
		"one does not answer":   {[]controllerView{{Address: "a9", Error: "refused", Node: -1}, is(2, "Leader", 4, "c", 1, 9, "x")}, 2, ""},
		"those of two clusters": {[]controllerView{is(1, "Leader", 4, "c", 1, 9, "x"), is(2, "Leader", 4, "d", 1, 9, "y")}, 2, "node 1 at a1 is of cluster c and node 2 at a2 of d"},
	} {
		view, err := judgeQuorum(c.list)
		if view.Leader != c.leader {
			t.Errorf("%s: node %d leads, want %d", name, view.Leader, c.leader)
		}
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

func TestACommandThatRunsOutOfTimeSaysWhereToLook(t *testing.T) {
	n := newTestNode(t)
	f := clientFlags{bootstrap: n.clients, timeout: 500 * time.Millisecond}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	err := f.withClient(cmd, func(ctx context.Context, _ *kgo.Client) error {
		<-ctx.Done()
		return fmt.Errorf("create: %w", ctx.Err())
	})
	if err == nil || !strings.Contains(err.Error(), "quorum status") || !strings.Contains(err.Error(), "create") {
		t.Errorf("it says %v", err)
	}
	if err := f.withClient(cmd, func(context.Context, *kgo.Client) error { return io.EOF }); err != io.EOF {
		t.Errorf("another error: %v", err)
	}
}

// A cluster of which some brokers are dead still shows what the others know.
func TestSilentLeadersAreNamed(t *testing.T) {
	at := func(id int32, err error) kadm.ShardError {
		return kadm.ShardError{Err: err, Broker: kadm.BrokerDetail{NodeID: id, Host: "::1", Port: 9000 + id}}
	}
	silent, other := silentLeaders(&kadm.ShardErrors{Name: "ListOffsets", Errs: []kadm.ShardError{at(2, io.EOF), at(1, io.EOF), at(2, io.EOF)}})
	if other != nil || silent == nil || !strings.Contains(silent.Error(), "broker 1 at [::1]:9001 and broker 2 at [::1]:9002 do not answer (EOF)") || !strings.Contains(silent.Error(), "quorum status") {
		t.Errorf("%v, %v", silent, other)
	}
	for _, err := range []error{nil, io.EOF, &kadm.ShardErrors{Errs: []kadm.ShardError{at(-1, io.EOF)}}} {
		if silent, other := silentLeaders(err); silent != nil || other != err {
			t.Errorf("%v: %v, %v", err, silent, other)
		}
	}
}
