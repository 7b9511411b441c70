package coordinator

import "time"

// Record is one record of the internal topic; Value nil is a tombstone.
type Record struct {
	Key, Value []byte
}

// Machine is the state kept in one partition. Its methods, and the functions
// given to Do, Ask and All, run under the shard's lock, one at a time; they must
// not wait and must not call back into Shards.
//
// A machine changes at once and returns the records that have the same effect on
// Replay. All records of one return are appended together, as one batch where
// they fit in one. When a shard is lost its machine is dropped without a call, and who waits
// for a reply of it is told.
type Machine interface {
	// Replay takes one record of the log, in order, before Loaded. Key and Value
	// are the log's, and good until it returns. timestamp is the record's, in ms. What it does not
	// know it skips; an error says that the log makes no sense, and the shard does
	// not load.
	Replay(r Record, offset, timestamp int64) error
	// Loaded ends the replay: sessions of members begin anew, as in Kafka.
	Loaded(now time.Time)
	// Next is when Tick wants to be called; zero is never. It is asked after every
	// call, so it must be cheap.
	Next() time.Time
	// Tick does what time asks for, and may reply to earlier calls.
	Tick(now time.Time) []Record
	// Delay says that for so long nobody could be answered: what members have to do
	// in time they may do that much later. Tick was not called meanwhile.
	Delay(d time.Duration)
	// Live yields every live record until yield says false: replayed in any order
	// into an empty machine they make this one. Key and Value are good until yield
	// returns.
	Live(yield func(Record) bool)
}
