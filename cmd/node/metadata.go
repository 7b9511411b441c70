package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"ponor/cmd/node/process"
	"ponor/commitlog"
	"ponor/controller"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/verify"
	"ponor/sharedlog/wal"
)

func newMetadata() *cobra.Command {
	return family("metadata", "Back up the cluster's metadata and restore it", newMetadataBackup(), newMetadataRestore(), newMetadataAudit())
}

func newMetadataBackup() *cobra.Command {
	var v storeVerify
	cmd := &cobra.Command{
		Use: "backup FILE", Short: "Write the metadata to a file", Args: takes(1, 1),
		Long: `Writes the metadata to a file that must not exist: who owns what, where the
records are, configs. It holds everything that had happened before the command
began. Any broker will do. 'ponor dump metadata FILE' shows what is in it.

When a majority of the controllers is lost but one directory is left, --metadata
takes the backup from that: all directories that are left, the one that is ahead
counts.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			image, err := v.source(cmd, new(verified))
			if err != nil {
				return err
			}
			img, err := image(cmd.Context())
			if err != nil {
				return err
			}
			b := controller.Backup{Image: img, Taken: time.Now()}
			var out bytes.Buffer
			if _, err := b.WriteTo(&out); err != nil {
				return err
			}
			if err := writeNew(args[0], out.Bytes()); err != nil {
				if errors.Is(err, os.ErrExist) {
					return fmt.Errorf("write backup: %s is there already: choose another name, or move it away", args[0])
				}
				return fmt.Errorf("write backup: %w", err)
			}
			hash := img.Hash()
			cmd.Printf("%s: cluster %s, generation %d, index %d, %s, hash %s, %s\n", args[0], img.ClusterID(), img.Generation(),
				img.Index(), count(img.TopicCount(), "topic"), hex.EncodeToString(hash[:8]), bytesText(int64(out.Len())))
			return nil
		},
	}
	v.register(cmd)
	cmd.Flags().StringSliceVar(&v.metadata, "metadata", nil, "data directories of stopped controllers, comma-separated, instead of a running cluster")
	return cmd
}

// writeNew writes a file durably, which must not exist.
func writeNew(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

// restoration are the flags of 'metadata restore'.
type restoration struct {
	store, dataDir, address string
	node                    int32
	force                   bool
}

func newMetadataRestore() *cobra.Command {
	var r restoration
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Make the first controller of a new quorum from a backup", Args: takes(1, 1),
		Long: `Makes the metadata of a new quorum of one from a backup, in an empty --data-dir.
Stop what is left of the cluster first: what it acknowledges meanwhile is in no log of
the restored one. Addresses of the cluster where somebody answers are an error, unless
--force says that these are others. The restored cluster is of a new generation, which
the store remembers: nodes of the old one that run all the same end within 10 s, and
they and their metadata directories are refused from then on.

Start the node with the same --node-id and --data-dir, then the other
controllers with empty metadata directories and --join naming this one, and give
them their votes by 'ponor quorum add'.

A backup is of one moment. Topics, partitions and configs are as they were then;
what was created later is lost with its records. Records acknowledged later are
recovered from the write-ahead logs, but for those that a broker packed, rewrote or
deleted after the backup: each such log is named here (NOT RESTORED), each such
object by 'ponor metadata audit'. So take backups often. Until the audit has passed
the restored cluster deletes nothing from the store.`,
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd, args[0]) },
	}
	cmd.Flags().StringVar(&r.store, "store", "", "the cluster's store")
	cmd.Flags().StringVar(&r.dataDir, "data-dir", "ponor-data", "data directory of the node, without metadata")
	cmd.Flags().StringVar(&r.address, "controller-advertise", "127.0.0.1:9192", "controller address of the node, as other nodes will dial it")
	cmd.Flags().Int32Var(&r.node, "node-id", 1, "id of the node")
	cmd.Flags().BoolVar(&r.force, "force", false, "restore although somebody answers at addresses of the cluster, after a wait for nodes of it to end")
	return cmd
}

func (r *restoration) run(cmd *cobra.Command, file string) error {
	if r.store == "" {
		return usagef("--store is missing: say where the cluster's logs are, as the nodes' --store does")
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read backup: %w", err)
	}
	backup, err := controller.ReadBackup(raw)
	if err != nil {
		return err
	}
	if err := isStore(r.store); err != nil {
		return err
	}
	ctx, img := cmd.Context(), backup.Image
	b, err := openBucket(ctx, r.store, fmt.Sprintf("restore-%d", os.Getpid()))
	if err != nil {
		return err
	}
	defer b.Close()
	if err := objstore.Verify(ctx, b, objstore.Marker{Cluster: img.ClusterID(), Store: img.StoreID()}); err != nil {
		return err
	}
	plan := controller.Restoration{
		Backup: backup, NodeID: metadata.BrokerID(r.node), Address: r.address, DataDir: filepath.Join(r.dataDir, "metadata"),
	}
	if err := plan.Check(); err != nil { // before the cluster that may be there is fenced
		return err
	}
	gen, err := r.claim(cmd, b, img)
	if err != nil {
		return err
	}
	fenced, err := wal.FenceAll(ctx, wal.SealConfig{Bucket: b, ClusterID: img.ClusterID()}, gen)
	if err != nil {
		return fmt.Errorf("fence the write-ahead logs of earlier generations: %w", err)
	}
	sealed, lost := sealLost(img, fenced)
	plan.Generation, plan.Sealed = gen, sealed
	restored, err := plan.Run()
	if err != nil {
		return fmt.Errorf("generation %d is claimed and the earlier ones are fenced, but %w", gen, err)
	}
	cmd.Printf("restored cluster %s of %s as generation %d, index %d; %d write-ahead logs fenced\n",
		restored.ClusterID(), backup.Taken.Format(time.RFC3339), restored.Generation(), restored.Index(), len(fenced))
	indexes, err := readIndexes(ctx, b, restored, fenced)
	if err != nil {
		return fmt.Errorf("the cluster is restored, but what it lacks cannot be told: %w", err)
	}
	lost = append(lost, movedAway(restored, indexes)...)
	packed, err := packedSince(ctx, b, img, gen, fenced)
	if err != nil {
		return fmt.Errorf("the cluster is restored, but what it lacks cannot be told: %w", err)
	}
	lost = append(lost, packed...)
	for _, line := range lost {
		cmd.Printf("NOT RESTORED  %s\n", line)
	}
	if len(lost) > 0 {
		cmd.Printf("Records acknowledged after the backup are recovered, but for those named NOT RESTORED and those of topics created after it: the restored logs do not have them.\n")
	} else {
		cmd.Printf("Records acknowledged after the backup are recovered, but for those of topics created after it.\n")
	}
	cmd.Printf("Start it: ponor start --node-id %d --data-dir %s --store '%s' --controller-listen %s, without --join, else as before.\n", r.node, r.dataDir, r.store, r.address)
	cmd.Printf("Then see what else is missing: ponor metadata audit '%s'. Before that has passed nothing is deleted from the store.\n", r.store)
	return nil
}

// claim takes a new generation, by which the cluster that was there ends.
func (r *restoration) claim(cmd *cobra.Command, b objstore.Bucket, img *metadata.Image) (gen uint64, err error) {
	ctx := cmd.Context()
	running := answering(ctx, img)
	if len(running) > 0 && !r.force {
		return 0, fmt.Errorf("somebody answers at %s, which the backup has as addresses of the cluster: stop all its nodes first, what they acknowledge from now on would be lost; if these are no nodes of it, say --force", strings.Join(running, ", "))
	}
	if gen, err = objstore.ClaimGeneration(ctx, b, img.ClusterID(), img.Generation()); err != nil || len(running) == 0 {
		return gen, err
	}
	cmd.PrintErrf("waiting %v for nodes of the cluster that still run to end\n", restoreWait)
	select {
	case <-time.After(restoreWait):
		return gen, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("generation %d is claimed, and nothing is restored: %w", gen, ctx.Err())
	}
}

const (
	// answerPatience is how long an address may take to answer.
	answerPatience = 2 * time.Second
	// restoreWait is when every node that runs has seen the new generation, and ended.
	restoreWait = 2 * process.GenerationEvery
)

// answering lists addresses of a cluster where somebody takes connections.
func answering(ctx context.Context, img *metadata.Image) []string {
	all := map[string]bool{}
	for b := range img.Brokers() {
		if b.ControllerAddress != "" {
			all[b.ControllerAddress] = true
		}
		for _, e := range b.Endpoints {
			all[e.Address()] = true
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var list []string
	for address := range all {
		wg.Go(func() {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				return
			}
			_ = c.Close()
			mu.Lock()
			defer mu.Unlock()
			list = append(list, address)
		})
	}
	wg.Wait()
	slices.Sort(list)
	return list
}

// sealLost finds WALs that cannot be recovered from the backup, because slots that
// it needs were packed and deleted after it: how they are sealed as they are, and
// a line for each.
func sealLost(img *metadata.Image, fenced []wal.Fenced) (sealed []*metadatapb.Sealed, lost []string) {
	for _, f := range fenced {
		w, known := img.WAL(f.Incarnation)
		f = f.From(w.Trim)
		switch {
		case f.End == 0 && len(f.Behind) == 0: // it never wrote
		case !known || w.Generation != f.Generation:
			lost = append(lost, fmt.Sprintf("broker %s registered after the backup: what it wrote is in the store and in no log", f.Incarnation))
		case w.State == metadata.Sealed:
		case f.End < w.Trim: // what it had above, if anything, left objects: packedSince
		case !f.Has(w.Trim):
			lost = append(lost, fmt.Sprintf("broker %s packed records after the backup: the logs of its partitions end where the backup has them, what it wrote later is in the store only", f.Incarnation))
			sealed = append(sealed, &metadatapb.Sealed{Incarnation: f.Incarnation.Proto(), End: f.End})
		case len(f.Behind) > 0:
			lost = append(lost, fmt.Sprintf("broker %s has slots %d to %d of its write-ahead log behind slot %d, which is missing: if it was packed after the backup, what is in them was acknowledged, and is in the store only; if the broker ended while it wrote it, none of it was",
				f.Incarnation, f.Behind[0], f.Behind[len(f.Behind)-1], f.End))
		}
	}
	return sealed, lost
}

// packedSince has a line for each broker of which the WAL says nothing, because all
// of it was packed and deleted, or what is left of it is what the backup knows, and
// that has newer objects than the backup: their numbers are above those in it.
func packedSince(ctx context.Context, b objstore.Bucket, img *metadata.Image, below uint64, fenced []wal.Fenced) (lines []string, err error) {
	newest := map[metadata.Incarnation]uint64{} // number after the newest object that the backup refers to
	for t := range img.Topics() {
		for p := range img.Partitions(t.ID) {
			for _, x := range p.Extents {
				if n, err := metadata.ParseObjectName(x.Object); err == nil && n.Kind != metadata.WALSlot {
					newest[n.Creator] = max(newest[n.Creator], n.Number+1)
				}
			}
		}
	}
	said := func(gen uint64, inc metadata.Incarnation) bool {
		w, known := img.WAL(inc)
		known = known && w.Generation == gen
		return known && w.State == metadata.Sealed || slices.ContainsFunc(fenced, func(f wal.Fenced) bool {
			if f.Generation != gen || f.Incarnation != inc {
				return false
			}
			f = f.From(w.Trim)
			return !known || w.Trim <= f.End && !f.Has(w.Trim)
		})
	}
	for gen := uint64(1); gen < below; gen++ {
		prefix := objstore.GenerationPrefix(img.ClusterID(), gen) + "/"
		since := map[metadata.Incarnation]bool{}
		for _, kind := range []metadata.ObjectKind{metadata.SegmentObject, metadata.IndexObject} {
			err := b.List(ctx, prefix+string(kind)+"/", "", func(i objstore.Info) error {
				n, err := metadata.ParseObjectName(strings.TrimPrefix(i.Key, prefix))
				if err == nil && n.Number >= newest[n.Creator] {
					since[n.Creator] = true
				}
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("list objects of generation %d: %w", gen, err)
			}
		}
		for inc := range since {
			if !said(gen, inc) {
				lines = append(lines, fmt.Sprintf("broker %s packed or rewrote records after the backup: what is no longer in its write-ahead log is in the store and in no log", inc))
			}
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// readIndexes reads what the WALs hold that the restored cluster will recover.
func readIndexes(ctx context.Context, b objstore.Bucket, img *metadata.Image, fenced []wal.Fenced) (map[metadata.Incarnation][]wal.Index, error) {
	out := map[metadata.Incarnation][]wal.Index{}
	for _, f := range fenced {
		w, known := img.WAL(f.Incarnation)
		if !known || w.Generation != f.Generation || w.State == metadata.Sealed {
			continue
		}
		sealed, err := wal.Seal(ctx, wal.SealConfig{Bucket: b, Prefix: objstore.GenerationPrefix(img.ClusterID(), f.Generation),
			ClusterID: img.ClusterID(), Generation: f.Generation, Incarnation: f.Incarnation, Trim: w.Trim})
		if err != nil {
			return nil, fmt.Errorf("read the write-ahead log of broker %s: %w", f.Incarnation, err)
		}
		out[f.Incarnation] = sealed.Slots
	}
	return out, nil
}

// movedAway has a line for each partition of which WALs hold records that the owner
// known to the backup did not write, or not without a gap: it had moved.
func movedAway(img *metadata.Image, indexes map[metadata.Incarnation][]wal.Index) (lines []string) {
	recovered, written := map[commitlog.StreamID]commitlog.Offset{}, map[commitlog.StreamID]commitlog.Offset{}
	for inc, slots := range indexes {
		for _, slot := range slots {
			for _, c := range slot.Chunks {
				p, ok := img.PartitionByStream(c.Stream)
				if !ok || c.End <= p.End {
					continue
				}
				written[c.Stream] = max(written[c.Stream], c.End)
				if end := max(recovered[c.Stream], p.End); slices.Contains(p.Unsealed, inc) && c.Base == end && c.Epoch <= p.Epoch {
					recovered[c.Stream] = c.End
				}
			}
		}
	}
	for stream, end := range written {
		p, _ := img.PartitionByStream(stream)
		if has := max(recovered[stream], p.End); has < end {
			lines = append(lines, fmt.Sprintf("%s/%d moved to another broker after the backup: its offsets %d to %d are in the store and in no log", p.TopicName, p.Number, has, end-1))
		}
	}
	slices.Sort(lines)
	return lines
}

func newMetadataAudit() *cobra.Command {
	var v storeVerify
	var accept bool
	cmd := &cobra.Command{
		Use: "audit STORE", Short: "See what a restore lost, and allow deletion again", Args: takes(1, 1),
		Long: `Reads the whole store, as 'ponor verify store' does, and compares it with the
metadata of the running cluster, which was restored. It names

  PROBLEM       what the metadata refers to and the store does not have, or has
                damaged: records that were packed, rewritten or deleted after the
                backup. Reads of them fail.
  UNREFERENCED  what earlier generations left in the store and no log refers to:
                records that were written again since, and those of the brokers
                that 'ponor metadata restore' named NOT RESTORED.

If there is nothing of either, the restored cluster may delete objects again. If
there is, the command exits with 1 and the cluster may not, until somebody has looked
and says --accept: then the unreferenced objects are deleted, and what is in them only
is gone for good. Copy them away first if they may matter.`,
		Example: `  ponor metadata audit dir:///srv/ponor/store
  ponor metadata audit dir:///srv/ponor/store --accept`,
		RunE: func(cmd *cobra.Command, args []string) error { return auditStore(cmd, &v, args[0], accept) },
	}
	v.register(cmd)
	cmd.Flags().BoolVar(&accept, "accept", false, "give up what was found, and allow deletion")
	cmd.Flags().IntVar(&v.parallel, "parallel", 16, "how many objects to read at once; each takes 4 MiB of memory")
	return cmd
}

func auditStore(cmd *cobra.Command, v *storeVerify, store string, accept bool) error {
	v.format, v.garbage = formatJSON, true
	out, err := v.verify(cmd, store)
	if err != nil {
		return uncheckedError{fmt.Errorf("audit %s: %w", store, err)}
	}
	for _, p := range out.List {
		cmd.Printf("PROBLEM  %s\n", p)
	}
	if more := out.Problems - len(out.List); more > 0 {
		cmd.Printf("PROBLEM  and %d more; 'ponor verify store' lists all\n", more)
	}
	left := leftovers(out.Garbage, objstore.GenerationPrefix(out.Cluster, out.Generation)+"/")
	for _, l := range left {
		cmd.Printf("UNREFERENCED  %s  %s, %s: %s\n", l.prefix, count(l.objects, "object"), bytesText(l.bytes), l.reason)
	}
	found := foundText(out.Problems, len(left))
	if out.Unsteady > 0 {
		return uncheckedError{fmt.Errorf("%d streams or WALs changed faster than they could be read: run it again, under less load", out.Unsteady)}
	}
	if out.Problems+len(left) > 0 && !accept {
		cmd.Printf("%s: generation %d may not delete objects yet.\n", found, out.Generation)
		if out.Problems > 0 {
			cmd.Printf("What the problems name is lost, unless a copy of the store has it or a later backup refers to it.\n")
		}
		if len(left) > 0 {
			cmd.Printf("Unreferenced objects are of no use to the cluster. Copy away what 'ponor metadata restore' named NOT RESTORED, if it may matter ('ponor dump' reads it).\n")
		}
		cmd.Printf("To give this up and allow deletion: ponor metadata audit '%s' --accept\n", store)
		return silentError{errors.New(found)}
	}
	if out.Generation <= 1 {
		cmd.Printf("cluster %s was never restored: it may delete objects without an audit; %s read, %s\n", out.Cluster, count(int(out.Records), "record"), found)
		return nil
	}
	b, err := openBucket(cmd.Context(), store, fmt.Sprintf("audit-%d", os.Getpid()))
	if err != nil {
		return err
	}
	defer b.Close()
	if err := objstore.MarkAudited(cmd.Context(), b, out.Cluster, out.Generation); err != nil {
		return err
	}
	cmd.Printf("generation %d of cluster %s may delete objects: %s read, %s\n", out.Generation, out.Cluster, count(int(out.Records), "record"), found)
	return nil
}

// foundText says how much was found that somebody has to look at.
func foundText(problems, left int) string {
	switch {
	case problems+left == 0:
		return "nothing is missing or left over"
	case problems == 0:
		return "nothing is missing, but there " + isAre(left, "group") + " of unreferenced objects"
	case left == 0:
		return count(problems, "problem")
	}
	return count(problems, "problem") + " and " + count(left, "group") + " of unreferenced objects"
}

// isAre is "is 1 group", "are 2 groups".
func isAre(n int, noun string) string {
	if n == 1 {
		return "is " + count(n, noun)
	}
	return "are " + count(n, noun)
}

// leftover are objects of one log of an earlier generation that nothing refers to.
type leftover struct {
	prefix, reason string
	objects        int
	bytes          int64
}

// leftovers groups garbage outside of a generation's prefix.
func leftovers(garbage []verify.Garbage, current string) (list []leftover) {
	for _, g := range garbage {
		if strings.HasPrefix(g.Key, current) {
			continue
		}
		prefix := g.Key[:strings.LastIndexByte(g.Key, '/')+1]
		i := slices.IndexFunc(list, func(l leftover) bool { return l.prefix == prefix && l.reason == g.Reason })
		if i < 0 {
			i = len(list)
			list = append(list, leftover{prefix: prefix, reason: g.Reason})
		}
		list[i].objects++
		list[i].bytes += g.Bytes
	}
	slices.SortFunc(list, func(a, b leftover) int {
		return cmp.Or(cmp.Compare(a.prefix, b.prefix), cmp.Compare(a.reason, b.reason))
	})
	return list
}
