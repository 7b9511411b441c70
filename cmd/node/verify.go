package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"ponor/controller"
	"ponor/metadata"
	"ponor/partition"
	"ponor/sharedlog/objstore"
	"ponor/sharedlog/verify"
)

func newVerify() *cobra.Command {
	return family("verify", "Prove that what a cluster rests on is sound", newVerifyStore())
}

// storeVerify are the flags of 'verify store'.
type storeVerify struct {
	clientFlags
	metadata []string
	format   string
	garbage  bool
	parallel int
}

func newVerifyStore() *cobra.Command {
	var v storeVerify
	cmd := &cobra.Command{
		Use:   "store URL",
		Short: "Read a whole store and compare it with the metadata",
		Long: `Checks that every object in the store is referred to by the metadata, or garbage
for a known reason; that everything the metadata refers to is there; and reads
every record batch and checks every checksum on the way. It only reads.

While the cluster runs, give --bootstrap: nothing that comes or goes meanwhile is
reported. While it is stopped, give --metadata and the data directories of all
controllers: the one that is ahead counts. A snapshot (a directory, or the file
state.bin) will do if nothing happened after it.

Exits with 0 if all is sound, 1 if there are problems, 2 if it could not be
checked. Each problem is a line that says what, where, and what to do.`,
		Example: `  ponor verify store dir:///srv/ponor/store --bootstrap broker-1:9092
  ponor verify store 's3://logs/cluster-1?region=eu-central-1' --parallel 64
  ponor verify store dir:///srv/ponor/store --metadata /var/lib/ponor-1,/var/lib/ponor-2,/var/lib/ponor-3`,
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return v.run(cmd, args[0]) },
	}
	v.register(cmd)
	cmd.Flags().StringSliceVar(&v.metadata, "metadata", nil, "data directories of stopped controllers, or a snapshot, comma-separated")
	cmd.Flags().BoolVar(&v.garbage, "garbage", false, "list every piece of garbage too")
	cmd.Flags().IntVar(&v.parallel, "parallel", 16, "how many objects to read at once; each takes 4 MiB of memory")
	formatFlag(cmd, &v.format)
	return cmd
}

// uncheckedError exits with 2: nothing was found wrong, because it could not be
// looked for.
type uncheckedError struct{ error }

func (e uncheckedError) Unwrap() error { return e.error }

func (v *storeVerify) run(cmd *cobra.Command, store string) error {
	if v.format != formatText && v.format != formatJSON {
		return usagef("unknown format %q: text or json", v.format)
	}
	if len(v.metadata) > 0 && cmd.Flags().Changed("bootstrap") {
		return usagef("--metadata is for a stopped cluster and --bootstrap for a running one: give one of them")
	}
	if v.parallel < 1 {
		return usagef("--parallel is %d: at least 1", v.parallel)
	}
	out, err := v.verify(cmd, store)
	if err != nil {
		return uncheckedError{fmt.Errorf("verify store %s: %w", store, err)}
	}
	if err := render(cmd, v.format, out, out.print); err != nil {
		return err
	}
	switch {
	case out.Problems > 0:
		return silentError{errors.New(count(out.Problems, "problem"))}
	case out.Unsteady > 0:
		err := fmt.Errorf("%d streams or WALs changed faster than they could be read: run it again, closer to the store or under less load", out.Unsteady)
		if v.format == formatJSON {
			err = silentError{err}
		}
		return uncheckedError{err}
	}
	return nil
}

// verified is what 'verify store' prints.
type verified struct {
	*verify.Report
	Sound   bool             `json:"sound"`
	Garbage []verify.Garbage `json:"garbage,omitempty"`
	Notes   []string         `json:"notes,omitempty"`
	listed  bool             // problems and garbage were printed as they were found
}

func (v *storeVerify) verify(cmd *cobra.Command, store string) (verified, error) {
	var out verified
	ctx := cmd.Context()
	if err := isStore(store); err != nil {
		return out, err
	}
	b, err := openBucket(ctx, store, "verify-"+fmt.Sprint(os.Getpid()))
	if err != nil {
		return out, err
	}
	defer b.Close()
	image, err := v.source(cmd, &out)
	if err != nil {
		return out, err
	}
	img, err := image(ctx)
	if err != nil {
		return out, err
	}
	if img.StoreID() != "" {
		if err := objstore.Verify(ctx, b, objstore.Marker{Cluster: img.ClusterID(), Store: img.StoreID()}); err != nil {
			return out, err
		}
	}
	cfg := verify.Config{
		Bucket: b, Image: image, Parallel: v.parallel, Progress: showProgress(cmd),
		Checkpoint: func(b []byte) error { _, err := partition.DecodeState(b); return err },
	}
	if v.format == formatText {
		out.listed = true
		cfg.Problem = func(p verify.Problem) { cmd.Printf("PROBLEM  %s\n", p) }
	}
	if v.garbage {
		cfg.Garbage = func(g verify.Garbage) {
			if out.listed {
				cmd.Printf("garbage  %s  %s  %s\n", g.Key, bytesText(g.Bytes), g.Reason)
			} else {
				out.Garbage = append(out.Garbage, g)
			}
		}
	}
	out.Report, err = verify.Run(ctx, cfg)
	if err != nil {
		return out, err
	}
	out.Sound = out.Report.Sound()
	return out, nil
}

// isStore refuses what opening would make: a directory that is not there.
func isStore(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return usagef("store %q: %w", raw, err)
	}
	switch u.Scheme {
	case "mem":
		return usagef("store %q is in another process's memory", raw)
	case "dir":
		_, err = os.Stat(u.Path)
	}
	return err
}

// source is where images come from: the disks of stopped controllers, or the
// running cluster.
func (v *storeVerify) source(cmd *cobra.Command, out *verified) (func(context.Context) (*metadata.Image, error), error) {
	if len(v.metadata) == 0 {
		return v.ask, nil
	}
	var newest controller.Stopped
	for _, path := range v.metadata {
		s, err := controller.ReadStopped(path)
		if err != nil {
			return nil, err
		}
		if newest.Image != nil && s.Image.ClusterID() != newest.Image.ClusterID() {
			return nil, fmt.Errorf("%s has metadata of cluster %s, another directory of %s", path, s.Image.ClusterID(), newest.Image.ClusterID())
		}
		if newest.Image == nil || s.Newer(newest) {
			newest = s
		}
	}
	voters := 0
	for b := range newest.Image.Brokers() {
		if b.Voter {
			voters++
		}
	}
	if len(v.metadata) < voters {
		note := fmt.Sprintf("metadata of %d of %d controllers was given: if another is ahead, what it moved since is reported wrongly", len(v.metadata), voters)
		out.Notes = append(out.Notes, note)
		cmd.PrintErrln("ponor: " + note)
	}
	return func(context.Context) (*metadata.Image, error) { return newest.Image, nil }, nil
}

// ask fetches an image from whichever broker answers, first from one that just did: a
// long check asks again and again, and one that hangs costs its whole share of the time.
func (v *storeVerify) ask(ctx context.Context) (*metadata.Image, error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	seeds := v.seeds()
	if len(seeds) == 0 {
		return nil, fmt.Errorf("%w; for a stopped cluster give --metadata", errNoSeeds)
	}
	if first, err := v.answering(ctx); err == nil {
		seeds = append([]string{first}, slices.DeleteFunc(seeds, func(s string) bool { return s == first })...)
	}
	img, err := askAny(ctx, seeds, v.timeout/time.Duration(len(seeds)), controller.AskImage)
	if err == nil {
		return img, nil
	}
	return nil, fmt.Errorf("ask the cluster at %s: %w; for a stopped cluster give --metadata", v.bootstrap, err)
}

// progressEvery is how often a long run says how far it is.
const progressEvery = 5 * time.Second

func showProgress(cmd *cobra.Command) func(verify.Progress) {
	begun := time.Now()
	said := begun
	return func(p verify.Progress) {
		if time.Since(said) < progressEvery {
			return
		}
		said = time.Now()
		cmd.PrintErrf("ponor: %s: %d objects, %s read in %v\n", p.Step, p.Objects, bytesText(p.Bytes), time.Since(begun).Round(time.Second))
	}
}

// print shows the summary.
func (v verified) print(p *printer) {
	verdict := "sound"
	if !v.Sound {
		verdict = fmt.Sprintf("%d PROBLEMS", v.Problems)
	}
	if v.Problems == 0 && v.Unsteady > 0 {
		verdict = "nothing wrong found, not all could be read"
	}
	p.line("cluster %s, generation %d, metadata at index %d: %s", v.Cluster, v.Generation, v.Index, verdict)
	p.line("%s, %s read, %s", count(v.Streams, "stream"), count(int(v.Records), "record"), bytesText(v.Bytes))
	p.row("CLASS", "OBJECTS", "SIZE", "WHAT")
	var sum verify.Class
	for _, c := range v.Classes {
		if c.Objects > 0 {
			p.row(c.Name, c.Objects, bytesText(c.Bytes), c.Reason)
			sum.Objects, sum.Bytes = sum.Objects+c.Objects, sum.Bytes+c.Bytes
		}
	}
	p.row("all", sum.Objects, bytesText(sum.Bytes), "")
}
