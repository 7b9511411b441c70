package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func newCheck() *cobra.Command {
	return family("check", "Check what a cluster will rest on", newCheckStore())
}

// storeCheck is what 'check store' found in a store that can be used.
type storeCheck struct {
	Store string `json:"store"`
	Kind  string `json:"kind"`
	// CreateMillis is the fastest durable create of a small object.
	CreateMillis float64 `json:"create_ms"`
	// VerifiesChecksums: a damaged upload is refused by the store.
	VerifiesChecksums bool `json:"verifies_checksums"`
	// PutsPerSecond is what a busy broker asks of the store, 0 for no limit.
	PutsPerSecond float64  `json:"puts_per_second"`
	TargetObject  int      `json:"target_object_bytes"`
	Volatile      bool     `json:"volatile"`
	Warnings      []string `json:"warnings"`
}

func newCheckStore() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "store URL",
		Short: "Probe whether a store keeps what the log's safety rests on",
		Long: `Opens the store as a node does at its start, and creates, races, reads, lists
and deletes a few small objects under "probe/". Exits with 1 if the store cannot
be used, and says which promise it broke. It leaves nothing behind, and makes no
directory.`,
		Example: `  ponor check store dir:///srv/ponor/store
  ponor check store 's3://logs/cluster-1?region=eu-central-1'
  ponor check store 's3://logs?endpoint=http://minio:9000' --format json`,
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != formatText && format != formatJSON {
				return usagef("unknown format %q: text or json", format)
			}
			found, err := checkStore(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return render(cmd, format, found, found.print)
		},
	}
	formatFlag(cmd, &format)
	return cmd
}

func checkStore(ctx context.Context, raw string) (storeCheck, error) {
	b, err := openBucket(ctx, raw, "check")
	if err != nil {
		return storeCheck{}, err
	}
	defer b.Close()
	report, err := probeStore(ctx, b, checkPatience, func(error) {})
	if err != nil {
		return storeCheck{}, err
	}
	k := b.Kind()
	return storeCheck{
		Store: k.URL, Kind: k.Name,
		CreateMillis:      float64(report.PutNew.Round(10*time.Microsecond)) / float64(time.Millisecond),
		VerifiesChecksums: report.Checksums,
		PutsPerSecond:     k.PutsPerSecond, TargetObject: k.TargetObject, Volatile: k.Volatile,
		Warnings: append([]string{}, storeWarnings(b)...),
	}, nil
}

func (s storeCheck) print(p *printer) {
	yes := map[bool]string{true: "yes", false: "no"}
	rate := "as many as it takes"
	if s.PutsPerSecond > 0 {
		rate = fmt.Sprintf("%g", s.PutsPerSecond)
	}
	p.row("store", s.Store)
	p.row("creates exclusively", "yes")
	p.row("fastest create", fmt.Sprintf("%.2f ms", s.CreateMillis))
	p.row("refuses damaged uploads", yes[s.VerifiesChecksums])
	p.row("log writes per second and broker", rate)
	p.row("size of a full log object", bytesText(int64(s.TargetObject)))
	if s.Volatile {
		p.row("warning", "forgets everything with the process")
	}
	for _, w := range s.Warnings {
		p.row("warning", w)
	}
}
