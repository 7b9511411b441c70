package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newDump() *cobra.Command {
	return family("dump", "Show what one object or snapshot holds",
		newDumpOf("wal", "a slot of a write-ahead log, or a fence", func(_ string, b []byte) (dumped, error) { return dumpWAL(b) }),
		newDumpOf("segment", "a segment object: record batches of many streams", func(_ string, b []byte) (dumped, error) { return dumpSegment(b) }),
		newDumpOf("index", "an index object: where batches lie", func(_ string, b []byte) (dumped, error) { return dumpSegment(b) }),
		newDumpOf("metadata", "a backup of metadata, or the state.bin of a snapshot", dumpMetadata))
}

// dumped is the content of one object, ready to be shown.
type dumped interface {
	print(p *printer)
	// damage is what does not match its checksum although all around it could
	// be read: such an object is shown, and the command fails.
	damage() error
}

func newDumpOf(kind, what string, decode func(from string, b []byte) (dumped, error)) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   kind + " FILE|URL#KEY",
		Short: "Show " + what,
		Long: "Shows " + what + `.
It reads a local file, or an object by its store's URL and its key, checks every
checksum and writes nothing. Exits with 1 if anything is damaged, and says what
and where.`,
		Example: `  ponor dump ` + kind + ` /srv/ponor/file
  ponor dump ` + kind + ` 'dir:///srv/ponor/store#KEY'
  ponor dump ` + kind + ` 's3://logs/cluster-1?region=eu-central-1#KEY' --format json`,
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != formatText && format != formatJSON {
				return usagef("unknown format %q: text or json", format)
			}
			b, err := readObject(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			d, err := decode(args[0], b)
			if err != nil {
				return fmt.Errorf("dump %s %s: %w", kind, args[0], err)
			}
			if err := render(cmd, format, d, d.print); err != nil {
				return err
			}
			if err := d.damage(); err != nil {
				err = fmt.Errorf("dump %s %s: %w", kind, args[0], err)
				if format == formatJSON {
					return silentError{err} // the object shown has it
				}
				return err
			}
			return nil
		},
	}
	formatFlag(cmd, &format)
	return cmd
}

// readObject reads all of a local file, or of an object named by a store URL and
// "#key".
func readObject(ctx context.Context, from string) ([]byte, error) {
	if !strings.Contains(from, "://") {
		return os.ReadFile(from)
	}
	store, key, _ := strings.Cut(from, "#")
	if key == "" {
		return nil, usagef("%q names no object: add # and its key", from)
	}
	u, err := url.Parse(store)
	if err != nil {
		return nil, usagef("store %q: %w", store, err)
	}
	if u.Scheme == "dir" { // opening the store would make the directory
		return os.ReadFile(filepath.Join(u.Path, filepath.FromSlash(key)))
	}
	b, err := openBucket(ctx, store, "dump")
	if err != nil {
		return nil, err
	}
	defer b.Close()
	info, err := b.Head(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", from, err)
	}
	body := make([]byte, info.Size)
	n, err := b.GetRange(ctx, key, 0, body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", from, err)
	}
	return body[:n], nil
}

// damages is the list that a dump shows and fails with.
type damages []string

func (d *damages) add(format string, args ...any) { *d = append(*d, fmt.Sprintf(format, args...)) }

func (d damages) damage() error {
	if len(d) == 0 {
		return nil
	}
	return errors.New(strings.Join(d, "; "))
}

// millisText prints a record timestamp, which is in ms and negative for none.
func millisText(ms int64) string {
	if ms < 0 {
		return "none"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// okText prints the result of a check of bytes against their CRC.
func okText(ok bool) string {
	if ok {
		return "matches"
	}
	return "DAMAGED"
}
