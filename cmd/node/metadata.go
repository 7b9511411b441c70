package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ponor/controller"
	"ponor/metadata"
	"ponor/metadata/metadatapb"
	"ponor/sharedlog/objstore"
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
				return fmt.Errorf("write backup: %w", err)
			}
			hash := img.Hash()
			cmd.Printf("%s: cluster %s, generation %d, index %d, %d topics, hash %s, %s\n", args[0], img.ClusterID(), img.Generation(),
				img.Index(), img.TopicCount(), hex.EncodeToString(hash[:8]), bytesText(int64(out.Len())))
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
}

func newMetadataRestore() *cobra.Command {
	var r restoration
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Make the first controller of a new quorum from a backup", Args: takes(1, 1),
		Long: `Makes the metadata of a new quorum of one from a backup, in an empty --data-dir.
Stop what is left of the cluster first; what is not is fenced: the restored
cluster is of a new generation, which the store remembers, so that nodes and
metadata directories of the old one are refused from then on.

Start the node with the same --node-id and --data-dir, then the other
controllers with empty metadata directories and --join naming this one, and give
them their votes by 'ponor quorum add'.

What was acknowledged after the backup and is still in write-ahead logs is
recovered; each log of which that is not so is named. Nothing is deleted from the
store until 'ponor metadata audit' has passed.`,
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd, args[0]) },
	}
	cmd.Flags().StringVar(&r.store, "store", "", "the cluster's store")
	cmd.Flags().StringVar(&r.dataDir, "data-dir", "ponor-data", "data directory of the node, without metadata")
	cmd.Flags().StringVar(&r.address, "controller-advertise", "127.0.0.1:9192", "controller address of the node, as other nodes will dial it")
	cmd.Flags().Int32Var(&r.node, "node-id", 1, "id of the node")
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
	gen, err := objstore.ClaimGeneration(ctx, b, img.ClusterID(), img.Generation())
	if err != nil {
		return err
	}
	fenced, err := wal.FenceAll(ctx, wal.SealConfig{Bucket: b, ClusterID: img.ClusterID()}, gen)
	if err != nil {
		return fmt.Errorf("fence the write-ahead logs of earlier generations: %w", err)
	}
	plan.Generation, plan.Sealed = gen, r.lost(cmd, img, fenced)
	restored, err := plan.Run()
	if err != nil {
		return fmt.Errorf("generation %d is claimed and the earlier ones are fenced, but %w", gen, err)
	}
	cmd.Printf("restored cluster %s of %s as generation %d, index %d; %d write-ahead logs fenced\n",
		restored.ClusterID(), backup.Taken.Format(time.RFC3339), restored.Generation(), restored.Index(), len(fenced))
	cmd.Printf("start it: ponor start --node-id %d --data-dir %s --store %s --controller-listen %s, without --join\n", r.node, r.dataDir, r.store, r.address)
	return nil
}

// lost finds WALs that cannot be recovered from the backup, because slots that
// it needs were packed and deleted after it, and says so.
func (r *restoration) lost(cmd *cobra.Command, img *metadata.Image, fenced []wal.Fenced) []*metadatapb.Sealed {
	var out []*metadatapb.Sealed
	for _, f := range fenced {
		w, known := img.WAL(f.Incarnation)
		switch {
		case !known || w.Generation != f.Generation:
			cmd.Printf("NOT RESTORED  broker %s registered after the backup: its %d slots stay in the store\n", f.Incarnation, len(f.Slots))
		case w.State == metadata.Sealed || f.Has(w.Trim):
		default:
			cmd.Printf("NOT RESTORED  broker %s packed records after the backup: of its partitions the restored log ends where the backup does; its slots stay in the store\n", f.Incarnation)
			out = append(out, &metadatapb.Sealed{Incarnation: f.Incarnation.Proto(), End: f.End})
		}
	}
	return out
}

func newMetadataAudit() *cobra.Command {
	var v storeVerify
	var accept bool
	cmd := &cobra.Command{
		Use: "audit STORE", Short: "Allow a restored cluster to delete objects again", Args: takes(1, 1),
		Long: `Reads the whole store, as 'ponor verify store' does, and compares it with the
metadata of the running cluster. If everything that the metadata refers to is
there and sound, and the store has nothing of earlier generations that the
metadata does not refer to, the restored cluster may delete objects again. With
--accept it may in any case: what came after the backup is then given up.`,
		RunE: func(cmd *cobra.Command, args []string) error { return auditStore(cmd, &v, args[0], accept) },
	}
	v.register(cmd)
	cmd.Flags().BoolVar(&accept, "accept", false, "allow deletion whatever was found")
	cmd.Flags().IntVar(&v.parallel, "parallel", 16, "how many objects to read at once; each takes 4 MiB of memory")
	return cmd
}

func auditStore(cmd *cobra.Command, v *storeVerify, store string, accept bool) error {
	v.format, v.garbage = formatJSON, true
	out, err := v.verify(cmd, store)
	if err != nil {
		return uncheckedError{fmt.Errorf("audit %s: %w", store, err)}
	}
	found := int64(out.Problems + out.Unsteady)
	for _, p := range out.List {
		cmd.Printf("PROBLEM  %s\n", p)
	}
	current := objstore.GenerationPrefix(out.Cluster, out.Generation) + "/"
	for _, g := range out.Garbage {
		if !strings.HasPrefix(g.Key, current) {
			found++
			cmd.Printf("UNREFERENCED  %s  %s\n", g.Key, bytesText(g.Bytes))
		}
	}
	if found > 0 && !accept {
		return silentError{fmt.Errorf("%d findings", found)}
	}
	b, err := openBucket(cmd.Context(), store, fmt.Sprintf("audit-%d", os.Getpid()))
	if err != nil {
		return err
	}
	defer b.Close()
	if err := objstore.MarkAudited(cmd.Context(), b, out.Cluster, out.Generation); err != nil {
		return err
	}
	cmd.Printf("generation %d of cluster %s may delete objects: %d records read, %d findings\n", out.Generation, out.Cluster, out.Records, found)
	return nil
}
