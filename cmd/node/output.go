package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// Output formats of every command that reads.
const (
	formatText = "text"
	formatJSON = "json"
)

func formatFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVar(format, "format", formatText, "output format: text or json")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{formatText, formatJSON}, cobra.ShellCompDirectiveNoFileComp))
}

// printer writes human-readable output; columns are separated by tabs.
type printer struct{ w *tabwriter.Writer }

func (p *printer) line(format string, args ...any) { _, _ = fmt.Fprintf(p.w, format+"\n", args...) }

func (p *printer) row(cells ...any) {
	s := make([]string, len(cells))
	for i, c := range cells {
		s[i] = fmt.Sprint(c)
	}
	_, _ = fmt.Fprintln(p.w, strings.Join(s, "\t"))
}

// render prints value as JSON or calls text to print it for people.
func render(cmd *cobra.Command, format string, value any, text func(*printer)) error {
	switch format {
	case formatJSON:
		return writeJSON(cmd.OutOrStdout(), value)
	case formatText:
		p := &printer{w: tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)}
		text(p)
		return p.w.Flush()
	}
	return usagef("unknown format %q: text or json", format)
}

func writeJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// bytesText prints a size with a binary unit.
func bytesText(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	return fmt.Sprintf("%.1f %ciB", f, units[i])
}
