package engine

import "time"

// Stats are the engine's numbers at one moment.
type Stats struct {
	Streams       int           // with state in memory
	UnpackedSlots int           // durable in the WAL, not yet committed
	UnpackedBytes int64         // of record data in them
	UnpackedAge   time.Duration // of the oldest
	Trim          uint64        // first slot that recovery needs
	ReadCache     int64         // bytes in use
	Full          bool          // appends are pushed back
}

// Stats returns the numbers now.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Stats{
		Streams: len(e.streams), UnpackedSlots: len(e.unpacked), UnpackedBytes: e.bytes, Trim: e.trim,
		ReadCache: e.reader.cache.bytes(), Full: e.full.Load(),
	}
	if len(e.unpacked) > 0 {
		s.UnpackedAge = time.Since(e.since)
	}
	return s
}
