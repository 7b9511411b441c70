package controller

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// raftLogger passes Raft's warnings and errors on to slog. Raft's info lines
// are noise to an operator and are dropped.
type raftLogger struct {
	out  *slog.Logger
	name string
	args []any
}

func newRaftLogger(out *slog.Logger) hclog.Logger { return &raftLogger{out: out, name: "raft"} }

// Log writes a line of level warn or above.
func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) {
	if level < hclog.Warn {
		return
	}
	to := slog.LevelWarn
	if level >= hclog.Error {
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
	return &raftLogger{out: l.out, name: l.name, args: append(append([]any(nil), l.args...), args...)}
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
func (l *raftLogger) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger { //nolint:forbidigo // hclog's interface
	return log.New(l.StandardWriter(o), "", 0) //nolint:forbidigo // hclog's interface
}

// StandardWriter turns lines into warnings.
func (l *raftLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lineWriter{l} }

type lineWriter struct{ l *raftLogger }

// Write logs one line.
func (w lineWriter) Write(b []byte) (int, error) {
	w.l.Warn(strings.TrimSpace(string(b)))
	return len(b), nil
}
