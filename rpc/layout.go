package rpc

type layout struct{}

func learnLayout(key, version int16) *layout { return &layout{} }

func (l *layout) weigh(body []byte, limit int64) (int64, error) { return int64(len(body)), nil }

// decodeLimit is the most bytes that the decoded form of a request may take
// whose frame limit is limit (R3).
func decodeLimit(limit int) int64 { return 3 * int64(limit) }
