package report

import (
	"bufio"
	"embed"
	"fmt"
	"html/template"
	"io"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

// Extra is what a report shows besides a history and its results. The zero Extra
// is fine.
type Extra struct {
	// Command repeats the run. Empty: made of the header, whose settings are then
	// taken for flags.
	Command string
	// Why are sentences on what made the run unknown, or invalid, though no check
	// says so: a node that did not come back, a harness that ran out of disk.
	Why   []string
	Views []View
}

// View is a visualisation that a check wrote: a page of its own, such as
// Porcupine's.
type View struct {
	Title string
	// Page is embedded if it is at most maxView bytes and the page has room for
	// it. It may run scripts, but load nothing.
	Page []byte
	// Path is where it lies, relative to the report; the link to it.
	Path string
}

const (
	maxView  = 300 << 10 // bytes of one embedded view
	maxViews = 600 << 10 // and of all
)

//go:embed page
var files embed.FS

var page = template.Must(template.ParseFS(files, "page/*"))

// Write writes the page: the verdict and why, what was done to the cluster and how
// it answered on one axis of time, every check, and the operations around every
// anomaly. results are of checks on h.
func Write(w io.Writer, h *history.History, results []check.Result, verdict check.Verdict, extra Extra) error {
	buf := bufio.NewWriterSize(w, 1<<16)
	if err := page.ExecuteTemplate(buf, "report.html", newView(newRun(h, results, verdict, extra))); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return buf.Flush()
}
