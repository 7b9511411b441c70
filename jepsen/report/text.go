package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"ponor/jepsen/check"
	"ponor/jepsen/history"
)

const (
	textFailed  = 6 // checks that failed, in the summary
	textExample = 2 // anomalies of each
	textMissing = 6 // sentences
)

// Text writes a summary of a run for a terminal: the verdict first, then what
// matters, in at most 40 lines.
func Text(w io.Writer, h *history.History, results []check.Result, verdict check.Verdict, extra Extra) error {
	r := newRun(h, results, verdict, extra)
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  %s\n\n", strings.ToUpper(string(verdict)), r.sentence())
	for _, f := range r.facts() {
		say(&b, strings.ToLower(f.Name), f.Text)
	}
	say(&b, "did", fmt.Sprintf("%s operations: %s ok, %s failed, %s unknown", count(len(r.Ops)), count(r.ok), count(r.fail), count(r.info)))
	say(&b, "records", fmt.Sprintf("%s acknowledged, %s; %s polled", count(len(r.records)), r.unseenWords(), count(r.polled)))
	if len(r.faults) > 0 {
		say(&b, "injected", fmt.Sprintf("%s, %s", plural(len(r.faults), "fault", "faults"), r.faultWords()))
	}
	if len(r.gaps) > 0 {
		say(&b, "gap", r.gapWords(r.gaps[0]))
	}
	r.textChecks(&b)
	if missing := r.missing(); len(missing) > 0 {
		b.WriteByte('\n')
		for i, s := range missing {
			if i == textMissing {
				fmt.Fprintf(&b, "  and %d more\n", len(missing)-i)
				break
			}
			fmt.Fprintf(&b, "  %s\n", s)
		}
	}
	b.WriteByte('\n')
	say(&b, "again", r.command())
	_, err := w.Write(b.Bytes())
	return err
}

func say(b *bytes.Buffer, name, text string) {
	if text != "" {
		fmt.Fprintf(b, "  %-9s %s\n", name, text)
	}
}

// textChecks writes the checks that failed with their worst anomalies.
func (r *run) textChecks(b *bytes.Buffer) {
	for i := range r.results {
		c := &r.results[i]
		if c.Verdict != check.Invalid {
			return
		}
		if i == textFailed {
			fmt.Fprint(b, "\n  further checks failed; the page has them\n")
			return
		}
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(b, "  %-4s %s: %s\n", c.ID, c.Name, plural(c.Count, "anomaly", "anomalies"))
		for k := range c.Worst[:min(len(c.Worst), r.examples())] {
			a := &c.Worst[k]
			fmt.Fprintf(b, "       at %s: %s\n", clock(a.At), short(a.Text))
		}
	}
}

// examples are fewer if many checks failed.
func (r *run) examples() int {
	if len(r.results) > 4 && r.results[4].Verdict == check.Invalid {
		return 1
	}
	return textExample
}
