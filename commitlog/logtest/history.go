package logtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"ponor/commitlog"
	"ponor/internal/kbatch"
)

// model is the naive twin of a log: every batch appended by the present owner
// or found by it, and how many of them were acknowledged.
type model struct {
	*env
	rnd     *rand.Rand
	log     commitlog.Log
	epoch   commitlog.Epoch
	batches []modelBatch
	commits []commitlog.Commit // of batches not known durable
	start   commitlog.Offset
	trace   []string
}

type modelBatch struct {
	base, end commitlog.Offset
	bytes     []byte
	infos     commitlog.BatchInfo
}

// History runs a random sequence of appends, reads, trims, re-opens, takeovers
// and crashes from a seed against a naive model. A failure prints the steps.
func History(tb testing.TB, w World, seed uint64, steps int) {
	tb.Helper()
	m := &model{env: newEnv(tb, w), rnd: rand.New(rand.NewPCG(seed, 0x10c))}
	m.id.Stream = 999
	m.log = m.openWith(0, m.options())
	for range steps {
		m.step()
		if tb.Failed() {
			tb.Fatalf("history of seed %d went wrong at its last step: %q", seed, m.trace)
		}
	}
	m.settle()
	m.check()
	m.close(m.log)
}

func (m *model) options() commitlog.Options {
	return commitlog.Options{Settings: smallSegments, Checkpoints: remembers{}}
}

func (m *model) did(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

func (m *model) end() commitlog.Offset {
	if len(m.batches) == 0 {
		return m.start
	}
	return m.batches[len(m.batches)-1].end
}

func (m *model) step() {
	switch n := m.rnd.IntN(100); {
	case n < 50:
		m.appendRandom()
	case n < 70:
		m.readRandom()
	case n < 76:
		m.settle()
		m.check()
	case n < 82:
		m.trimRandom()
	case n < 88:
		m.did("close and open at epoch %d", m.epoch+1)
		m.close(m.log)
		m.epoch++
		m.log = m.openWith(m.epoch, m.options())
		m.reconcile()
	case n < 94:
		m.epoch += commitlog.Epoch(1 + m.rnd.IntN(2))
		m.did("taken over at epoch %d", m.epoch)
		old := m.log
		m.log = m.openWith(m.epoch, m.options())
		_ = old.Close(m.ctx())
		m.reconcile()
	default:
		m.crash()
	}
}

func (m *model) appendRandom() {
	n := 1 + m.rnd.IntN(4)
	m.did("append %d", n)
	for range n {
		m.seed++
		b := kbatch.Sized(int64(1000+m.rnd.IntN(1000)), 1+m.rnd.IntN(5), 80+m.rnd.IntN(600), m.seed)
		switch m.rnd.IntN(3) {
		case 0:
			b = b.Idempotent(int64(m.rnd.IntN(3)), 0, int32(m.seed))
		case 1:
			b = b.InTransaction(int64(3+m.rnd.IntN(2)), 0, int32(m.seed))
		}
		if m.rnd.IntN(10) == 0 {
			b = kbatch.Marker(int64(3+m.rnd.IntN(2)), 0, m.rnd.IntN(2) == 0, 1, 1000)
		}
		raw := b.Bytes()
		c := m.append(m.log, raw)
		if c.Base != m.end() {
			m.Errorf("append at end %d gives base %d", m.end(), c.Base)
		}
		stored := commitlog.Batch(raw)
		stored.SetBase(c.Base, m.epoch)
		m.batches = append(m.batches, modelBatch{base: c.Base, end: c.Last + 1, bytes: stored, infos: stored.Info()})
		m.commits = append(m.commits, c)
	}
}

// settle waits until all appends are durable.
func (m *model) settle() {
	m.did("settle")
	m.log.Seal()
	for _, c := range m.commits {
		m.succeeds(c)
	}
	m.commits = nil
}

func (m *model) readRandom() {
	from := m.start + commitlog.Offset(m.rnd.Int64N(int64(m.end()-m.start)+3)) - 1
	before := m.log.Bounds()
	got, err := readOnce(m.ctx(), m.log, from, commitlog.ReadOptions{MaxBytes: m.rnd.IntN(3000), MinOne: true})
	after := m.log.Bounds()
	m.did("read at %d of %+v", from, before)
	switch {
	case from < m.start || from > m.end():
		if !errors.Is(err, commitlog.ErrOffsetOutOfRange) {
			m.Errorf("read at %d outside gives %v", from, err)
		}
	case err != nil:
		m.Errorf("read at %d: %v", from, err)
	case len(got) == 0:
		if from < before.Stable {
			m.Errorf("read at %d below stable %d is empty", from, before.Stable)
		}
	default:
		m.matches(got, from, after.Stable)
	}
}

// matches wants got to be the model's batches from the one that holds from.
func (m *model) matches(got []commitlog.Batch, from, stable commitlog.Offset) {
	at := 0
	for at < len(m.batches) && m.batches[at].end <= from {
		at++
	}
	for i, b := range got {
		if at+i >= len(m.batches) || string(m.batches[at+i].bytes) != string(b) {
			m.Errorf("read at %d: batch %d at offset %d is not the one appended", from, i, b.BaseOffset())
			return
		}
		if b.LastOffset() >= stable {
			m.Errorf("read at %d returns offset %d, stable is %d", from, b.LastOffset(), stable)
		}
	}
}

// check compares the whole log with the model.
func (m *model) check() {
	if b := m.bounds(m.log); b.Start != m.start || b.End != m.end() || b.Stable != m.end() {
		m.Errorf("bounds are %+v, want %d to %d", b, m.start, m.end())
		return
	}
	m.tile(m.log)
	got, err := readAll(m.ctx(), m.log, m.start, 1+m.rnd.IntN(5000))
	if err != nil {
		m.Error(err)
		return
	}
	m.matches(got, m.start, m.end())
	if n := len(got); n > 0 && got[n-1].LastOffset()+1 != m.end() {
		m.Errorf("the log's last batch ends at %d, want %d", got[n-1].LastOffset()+1, m.end())
	}
}

func (m *model) trimRandom() {
	m.settle()
	to := m.start + commitlog.Offset(m.rnd.Int64N(int64(m.end()-m.start)/3+1))
	m.did("trim to %d", to)
	if err := m.log.Trim(m.ctx(), to); err != nil {
		m.Errorf("trim to %d: %v", to, err)
	}
	m.start = max(m.start, to)
}

func (m *model) crash() {
	c, ok := m.w.(Crasher)
	if !ok {
		return
	}
	held := false
	if h, ok := m.w.(Holder); ok && m.rnd.IntN(2) == 0 {
		held = true
		h.Hold()
		m.appendRandom()
		m.log.Seal()
		defer h.Release()
	}
	m.did("crash, held %v", held)
	// What says durable before the crash is what has to be there after it.
	commits := m.commits
	m.commits = nil
	for _, cm := range commits {
		if !cm.Resolved() {
			m.commits = append(m.commits, cm)
		} else if err := cm.Err(); err != nil {
			m.Errorf("commit %d failed: %v", cm.Base, err)
		}
	}
	c.Crash()
	if h, ok := m.w.(Holder); ok {
		h.Release()
	}
	m.log = m.openWith(m.epoch, m.options())
	m.reconcile()
}

// reconcile takes over what the new owner found: all that was acknowledged, and
// of the rest a prefix.
func (m *model) reconcile() {
	found := m.bounds(m.log).End
	acked := m.end()
	for _, c := range m.commits {
		if err := m.outcome(c); err != nil {
			acked = c.Base
			break
		}
	}
	m.commits = nil
	if found < acked {
		m.Errorf("the log ends at %d, %d were acknowledged", found, acked)
	}
	for len(m.batches) > 0 && m.batches[len(m.batches)-1].end > found {
		m.batches = m.batches[:len(m.batches)-1]
	}
	if m.end() != found {
		m.Errorf("the log ends at %d, inside or after what was appended (%d)", found, m.end())
		return
	}
	history := make([]commitlog.BatchInfo, len(m.batches))
	for i, b := range m.batches {
		history[i] = b.infos
	}
	m.recovers(m.log, history)
	m.check()
}
