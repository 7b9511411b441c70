package rpc

import (
	"context"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// KeyApiVersions is the API key of ApiVersions, the one API whose unknown
// versions are answered and whose response header never has tags (KIP-511).
const KeyApiVersions int16 = 18

// InternalKey is the first API key of the cluster's own calls. Their bodies
// are opaque to this package and their headers always flexible.
const InternalKey int16 = 10000

// DefaultFrameLimit is the size in bytes that a request frame may have where
// its API sets no other, and at most before authentication.
const DefaultFrameLimit = 1 << 20

// API is one row of a Server's table: one key and who handles it.
type API struct {
	// Key is the API key; a Server refuses two rows of one key.
	Key int16
	// Min and Max are the versions served. A request outside closes the
	// connection, save for ApiVersions.
	Min, Max int16
	// AdvertiseZero makes Advertised show 0 as the minimum although Min is
	// higher, for Produce: older librdkafka stops compressing without a
	// complaint if version 0 is not in the range (KAFKA-18659).
	AdvertiseZero bool
	// Raw hands the handler the body bytes instead of a decoded kmsg request.
	// Raw bodies come from a pool and are taken back after the reply.
	Raw bool
	// Flexible is the first flexible version. For keys that kmsg knows, zero
	// means to ask kmsg. For other keys it is used as is, so zero
	// makes every version flexible.
	Flexible int16
	// Limit is the largest frame in bytes, without the size prefix; zero is
	// DefaultFrameLimit. It also bounds the decoded form: frame and decoded
	// request together stay below four times Limit. Too small refuses honest
	// requests, too large lets one client take that much memory.
	Limit int
	// Handle serves a request on the connection's ordered goroutine. It may
	// block; ctx ends when the connection does. The Response is written as soon
	// as Handle returns.
	Handle func(ctx context.Context, r *Request) Response
	// Begin is used instead of Handle when work must start before earlier
	// replies are out. It runs on the reading goroutine and must not wait for
	// I/O or for other requests; the func it returns runs in order like Handle
	// and is always called.
	Begin func(ctx context.Context, r *Request) func(ctx context.Context) Response
}

// Advertised is the version range that ApiVersions should show.
func (a API) Advertised() (lowest, highest int16) {
	if a.AdvertiseZero {
		return 0, a.Max
	}
	return a.Min, a.Max
}

// Request is one request as a handler sees it.
type Request struct {
	Key, Version int16
	Correlation  int32
	// ClientID is empty for null.
	ClientID string
	Conn     *Conn
	// Body is the decoded request and nil for Raw APIs. Its byte fields alias
	// the frame, which is garbage collected, so they may be kept.
	Body kmsg.Request
	// Raw is the body of a Raw API. It is valid until the reply was written
	// (until Release of the Response is called) and must not be kept longer.
	Raw []byte
	// Received is when the frame was complete.
	Received time.Time
	// Unsupported marks an ApiVersions request of an unknown version: Body is
	// then an empty request of version 0, Version is what was asked, and the
	// reply is encoded as version 0 (KIP-511).
	Unsupported bool

	call *call
}

// Forget gives the memory budgets back what the request took, before its reply. It is
// for a handler that waits for other requests, such as a JoinGroup for those of the
// other members: what waits must not keep out what it waits for. Body is nil
// afterwards, and the handler keeps nothing of it but what it counts elsewhere.
// A Raw request keeps its budget: its frame is used again.
func (r *Request) Forget() {
	if q := r.call; q != nil && !q.route.Raw {
		r.Body = nil
		q.frame, q.Raw = nil, nil
		r.Conn.giveBack(q)
	}
}

// Response is what a handler returns: exactly one of Body, Buffers, Nothing or
// CloseErr. For a Kafka key the zero Response is a mistake of the handler, which
// is logged and closes the connection; for an internal key it is an empty body.
type Response struct {
	// Body is encoded by kmsg, with its version set to the request's.
	Body kmsg.Response
	// Buffers is an encoded body. It is written after the header without a
	// copy; the slice header itself is left unchanged.
	Buffers net.Buffers
	// Release, if set, is called once when Buffers are no longer needed, written
	// or not.
	Release func()
	// Nothing is for Produce with acks=0: no reply.
	Nothing bool
	// CloseErr closes the connection instead of replying, after earlier replies
	// went out. It is logged at debug level.
	CloseErr error
	// Held is for how long the handler put off an answer that it had, which no metric
	// counts.
	Held time.Duration
	// Throttle mutes the connection for this long after the reply (KIP-219):
	// no further request is read. A Body with a throttle field gets it set;
	// Buffers must carry it already.
	Throttle time.Duration
}
