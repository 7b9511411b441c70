package controller

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	"ponor/internal/seldom"
)

// raftLogger passes Raft's warnings and errors on to slog. Raft's info lines
// are noise to an operator and are dropped, what happens in every healthy
// cluster is for debugging, and what a dead peer causes many times a second is
// a warning now and then.
type raftLogger struct {
	out  *slog.Logger
	name string
	args []any
	seen *seldom.Log
}

func newRaftLogger(out *slog.Logger) hclog.Logger {
	return &raftLogger{out: out, name: "raft", seen: &seldom.Log{Every: warnEvery}}
}

// ordinary are events of a peer that starts, stops or catches up.
var ordinary = []string{"failed to decode incoming command", "failed to flush response", "failed to get previous log",
	"appendEntries rejected", "not part of stable configuration", "unable to get address for server", "heartbeat timeout reached",
	"rejecting vote request", "rejecting pre-vote request", "failed to get log", "no known peers, aborting election"}

// peerTrouble are events of a peer that does not answer.
var peerTrouble = []string{"failed to appendEntries to", "failed to heartbeat to", "failed to make requestVote RPC",
	"failed to make requestPreVote RPC", "failed to contact", "failed to pipeline appendEntries", "failed to send snapshot to", "failed to install snapshot", "Election timeout reached"}

// hasPrefix says whether msg begins with one of list, as Raft words it.
func hasPrefix(msg string, list []string) bool {
	return slices.ContainsFunc(list, func(p string) bool { return strings.HasPrefix(strings.ToLower(msg), strings.ToLower(p)) })
}

// Log writes a line of level warn or above.
func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) {
	if level < hclog.Warn {
		return
	}
	to := slog.LevelWarn
	switch {
	case hasPrefix(msg, ordinary):
		to = slog.LevelDebug
	case hasPrefix(msg, peerTrouble):
		if !l.seen.Allow(msg) {
			return
		}
	case level >= hclog.Error:
		to = slog.LevelError
	}
	attrs := append(make([]any, 0, 2+len(l.args)+len(args)), "event", msg)
	attrs = append(attrs, l.args...)
	for i := 0; i+1 < len(args); i += 2 {
		k := fmt.Sprint(args[i])
		if k == "error" {
			k = "err"
		}
		attrs = append(attrs, k, render(args[i+1]))
	}
	l.out.Log(context.Background(), to, "raft", attrs...)
}

func render(v any) any {
	if f, ok := v.(hclog.Format); ok && len(f) > 0 {
		if s, ok := f[0].(string); ok {
			return fmt.Sprintf(s, f[1:]...)
		}
	}
	return v
}

// Trace is dropped.
func (l *raftLogger) Trace(string, ...any) {}

// Debug is dropped.
func (l *raftLogger) Debug(string, ...any) {}

// Info is dropped.
func (l *raftLogger) Info(string, ...any) {}

// Warn logs at warn.
func (l *raftLogger) Warn(msg string, args ...any) { l.Log(hclog.Warn, msg, args...) }

// Error logs at error.
func (l *raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

// IsTrace is false.
func (l *raftLogger) IsTrace() bool { return false }

// IsDebug is false.
func (l *raftLogger) IsDebug() bool { return false }

// IsInfo is false.
func (l *raftLogger) IsInfo() bool { return false }

// IsWarn is true.
func (l *raftLogger) IsWarn() bool { return true }

// IsError is true.
func (l *raftLogger) IsError() bool { return true }

// ImpliedArgs are the attributes of every line.
func (l *raftLogger) ImpliedArgs() []any { return l.args }

// With adds attributes.
func (l *raftLogger) With(args ...any) hclog.Logger {
	return &raftLogger{out: l.out, name: l.name, seen: l.seen, args: append(append([]any(nil), l.args...), args...)}
}

// Name is the logger's name.
func (l *raftLogger) Name() string { return l.name }

// Named returns the same logger.
func (l *raftLogger) Named(string) hclog.Logger { return l }

// ResetNamed returns the same logger.
func (l *raftLogger) ResetNamed(string) hclog.Logger { return l }

// SetLevel is ignored; the level is always warn.
func (l *raftLogger) SetLevel(hclog.Level) {}

// GetLevel is warn.
func (l *raftLogger) GetLevel() hclog.Level { return hclog.Warn }

// StandardLogger writes lines as warnings.
func (l *raftLogger) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(o), "", 0)
}

// StandardWriter turns lines into warnings.
func (l *raftLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lineWriter{l} }

type lineWriter struct{ l *raftLogger }

// Write logs one line.
func (w lineWriter) Write(b []byte) (int, error) {
	w.l.Warn(strings.TrimSpace(string(b)))
	return len(b), nil
}
